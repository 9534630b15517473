import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { runInTimeSlices } from '../../../infra/timeouts/time-slices.ts';
import { type AcceptDeps, acceptDrafts } from '../../ingest/accept/accept-drafts.ts';
import { Rejections, type RunDraft, type Sender } from '../../ingest/accept/draft.ts';
import { readJsonRun, toBatchDraft } from '../../ingest/accept/read-run.ts';

/**
 * A run to write to a trace. Graph code may control the contents of its parts, so {@link writeTraceRecords} checks that
 * they refer to this run, trace and project.
 */
export interface TraceRecord {
  readonly kind: 'post' | 'patch';
  readonly runId: string;
  readonly traceId: string;
  /** Name of the project that contains the trace. */
  readonly project: string;
  parts(variant: TraceVariant): TraceParts;
}

/**
 * The parts of a run as JSON in the ingest format. Each part is a list of members without the enclosing braces. The
 * project is not included.
 */
export interface TraceParts {
  readonly location: string;
  readonly members: string;
  /** Members with inputs and outputs. The text is empty or starts with a comma. */
  readonly values: string;
}

/** Selects the parts of a run that are written. */
export interface TraceVariant {
  /** Whether to include inputs and outputs. */
  readonly values: boolean;
  /** Whether to apply the project, tags and metadata of the request. */
  readonly withRequestFields: boolean;
}

const variants: readonly TraceVariant[] = [
  { values: true, withRequestFields: true },
  { values: false, withRequestFields: true },
  { values: false, withRequestFields: false },
];

/**
 * Writes the records of one sender to the log in one batch. If ingest rejects a record because it is too large or
 * invalid, the record is retried without inputs and outputs, and then in the default project without the project, tags
 * and metadata of the request. Idempotent.
 *
 * @returns the records that ingest rejected in every form.
 * @throws retryable errors of the log.
 */
export async function writeTraceRecords<Record extends TraceRecord>(
  sender: Sender,
  records: readonly Record[],
  accept: AcceptDeps,
): Promise<readonly Record[]> {
  let remaining = records;
  for (const variant of variants) {
    const rejectedRunIds = new Set<string>();
    const drafts = await runInTimeSlices(buildDrafts(remaining, variant, rejectedRunIds, accept));
    if (drafts.length > 0) {
      try {
        const { rejected } = await acceptDrafts({ sender, drafts, rejected: new Rejections() }, accept);
        for (const { run } of rejected) rejectedRunIds.add(run);
      } catch (error) {
        if (!isRunlakeError(error) || error.class !== 'caller') throw error;
        for (const { runId } of drafts) rejectedRunIds.add(runId);
      }
    }
    remaining = remaining.filter(({ runId }) => rejectedRunIds.has(runId));
    if (remaining.length === 0) break;
  }
  return remaining;
}

function* buildDrafts(
  records: readonly TraceRecord[],
  variant: TraceVariant,
  rejectedRunIds: Set<string>,
  { config }: Pick<AcceptDeps, 'config'>,
) {
  const drafts: RunDraft[] = [];
  for (const record of records) {
    try {
      const draft = toBatchDraft(
        readJsonRun({ kind: record.kind, body: Buffer.from(encodeRecord(record, variant)) }, config),
      );
      if (matchesRecord(record, variant, draft)) drafts.push(draft);
      else rejectedRunIds.add(record.runId);
    } catch {
      rejectedRunIds.add(record.runId);
    }
    yield;
  }
  return drafts;
}

function matchesRecord(
  { runId, traceId, project }: TraceRecord,
  { withRequestFields }: TraceVariant,
  { projectName, projectId, ...draft }: RunDraft,
): boolean {
  if (draft.runId !== runId || draft.traceId !== traceId || projectId !== undefined) return false;
  return projectName === (withRequestFields ? project : undefined);
}

function encodeRecord(record: TraceRecord, variant: TraceVariant): string {
  const { location, members, values } = record.parts(variant);
  return `{${location},${members}${variant.withRequestFields ? `,"session_name":${JSON.stringify(record.project)}` : ''}${values}}`;
}

/** Returns a key that is equal for all records of one sender, so that they can be written in one batch. */
export function buildSenderKey({ workspaceId, userId, keyId }: Sender): string {
  return `${workspaceId} ${userId} ${keyId}`;
}

/**
 * Returns the time until the next flush. All buffers flush at the same moments, so that ClickHouse stores their records
 * with one INSERT.
 */
export function getMsToNextFlush(): number {
  return flushIntervalMs - (performance.now() % flushIntervalMs);
}

const flushIntervalMs = 1_000;
