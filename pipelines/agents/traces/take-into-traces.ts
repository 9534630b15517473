import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { type AcceptPorts, acceptDrafts } from '../../ingest/accept/accept-drafts.ts';
import type { RunDraft } from '../../ingest/accept/draft.ts';
import type { Sender } from '../../ingest/accept/publish-runs.ts';
import { readJsonRun } from '../../ingest/accept/read-json-run.ts';
import { draftOfBatch } from '../../ingest/accept/read-run.ts';
import { inSlices } from '../../ingest/in-slices.ts';

/** A run of a trace. Its parts may be of graph code: they are taken for no other run, trace or project. */
export interface TraceRecord {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  readonly traceId: string;
  /** Name of the project of the trace. */
  readonly project: string;
  parts(way: TraceWay): TraceParts;
}

/** A run as ingest takes it, but for its project: JSON without the braces. */
export interface TraceParts {
  readonly place: string;
  readonly members: string;
  /** Empty, or with a comma before. */
  readonly values: string;
}

/** How much of what a run says is told. */
export interface TraceWay {
  /** What went in and came out. */
  readonly values: boolean;
  /** It is as the request says: in its project, with its tags and metadata. */
  readonly asked: boolean;
}

const ways: readonly TraceWay[] = [
  { values: true, asked: true },
  { values: false, asked: true },
  { values: false, asked: false },
];

/**
 * Puts records of one sender into the log, together. One that ingest refuses, because it is too large or says what no trace may say, goes
 * without its values, and then in the default project without what the request says of it.
 *
 * @returns those that could not be taken at all.
 * @throws what the log throws, when it may take them later. Repeating it is harmless.
 */
export async function takeIntoTraces<Record extends TraceRecord>(
  sender: Sender,
  records: readonly Record[],
  accept: AcceptPorts,
): Promise<readonly Record[]> {
  let left = records;
  for (const way of ways) {
    const refused = new Set<string>();
    const drafts = await inSlices(draftsOf(left, way, refused, accept));
    if (drafts.length > 0) {
      try {
        const { rejected } = await acceptDrafts(sender, drafts, [], accept);
        for (const { run } of rejected) refused.add(run);
      } catch (error) {
        if (!isRunlakeError(error) || error.class !== 'caller') throw error;
        for (const { runId } of drafts) refused.add(runId);
      }
    }
    left = left.filter(({ runId }) => refused.has(runId));
    if (left.length === 0) break;
  }
  return left;
}

function* draftsOf(
  records: readonly TraceRecord[],
  way: TraceWay,
  refused: Set<string>,
  { config }: Pick<AcceptPorts, 'config'>,
) {
  const drafts: RunDraft[] = [];
  for (const record of records) {
    try {
      const draft = draftOfBatch(readJsonRun({ kind: record.kind, body: Buffer.from(textOf(record, way)) }, config));
      if (isOf(record, way, draft)) drafts.push(draft);
      else refused.add(record.runId);
    } catch {
      refused.add(record.runId);
    }
    yield;
  }
  return drafts;
}

function isOf(
  { runId, traceId, project }: TraceRecord,
  { asked }: TraceWay,
  { projectName, projectId, ...draft }: RunDraft,
): boolean {
  if (draft.runId !== runId || draft.traceId !== traceId || projectId !== undefined) return false;
  return projectName === (asked ? project : undefined);
}

function textOf(record: TraceRecord, way: TraceWay): string {
  const { place, members, values } = record.parts(way);
  return `{${place},${members}${way.asked ? `,"session_name":${JSON.stringify(record.project)}` : ''}${values}}`;
}

/** The same for those of one sender: their records go into the log together. */
export function senderKey({ workspaceId, userId, keyId }: Sender): string {
  return `${workspaceId} ${userId} ${keyId}`;
}

/** Records that wait go into the log at the same moments, whoever gathers them: so that they are stored by one insert. */
export function untilNextTakeMs(): number {
  return takeEveryMs - (performance.now() % takeEveryMs);
}

const takeEveryMs = 1_000;
