import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { TokenSigner } from '../../../infra/signing/token-signer.ts';
import { feedbackToken } from '../../feedback/feedback-token.ts';
import { isGivenUp } from '../runs/end-run.ts';
import { claimUnpublishedEnds, fitsEndEvent, markEndsPublished } from '../runs/published-ends.ts';
import type { EndedRun, RunSender } from '../runs/run-row.ts';
import type { RunEnd } from '../streams/stream-types.ts';
import type { TraceMarks } from '../traces/trace-order.ts';
import type { ExecutorDeps } from './executor.ts';

const eventsMissingPrefix = Buffer.from('{"events_missing":true,');
const unsaidPrefix = Buffer.from('{"unsaid":');
const feedbackPrefix = Buffer.from('{"feedback":');
/** The end of the first member. It cannot occur inside that member, which holds only strings, whose quotes are escaped. */
const endOfFirst = Buffer.from('},"status":');

/**
 * Encodes the {@link RunEnd} of a run as JSON text. The first member is `events_missing`, `unsaid` or `feedback`, if
 * the run has one of them, so that readers find it without parsing the values.
 */
export function endData(run: EndedRun, feedback: RunEnd['feedback']): Buffer {
  const { status, graphId, error, values, kwargs, interrupted, interrupts } = run;
  const members: string[] = [];
  if (run.eventsMissing) members.push('"events_missing":true');
  else if (error !== undefined && isGivenUp(error)) members.push(`"unsaid":${JSON.stringify(error)}`);
  else if (feedback !== undefined) members.push(`"feedback":${JSON.stringify(feedback)}`);
  members.push(`"status":${JSON.stringify(status)}`, `"graph_id":${JSON.stringify(graphId)}`);
  if (interrupted) members.push('"interrupted":true');
  const waiting = interrupts === undefined ? undefined : JSON.stringify(interrupts);
  if (waiting !== undefined && fitsEndEvent(kwargs, waiting)) members.push(`"interrupts":${waiting}`);
  if (error !== undefined) members.push(`"error":${JSON.stringify(error)}`);
  if (values !== undefined && fitsEndEvent(kwargs, values)) members.push(`"values":${values}`);
  return Buffer.from(`{${members.join(',')}}`);
}

/** Reads {@link RunEnd.events_missing} without parsing the JSON text. */
export function endHasGap(data: Uint8Array): boolean {
  return eventsMissingPrefix.equals(data.subarray(0, eventsMissingPrefix.length));
}

/** Returns the JSON text of {@link RunEnd.unsaid}; undefined if an event reported the failure, or the run did not fail. */
export function unsaidInEnd(data: Uint8Array): Uint8Array | undefined {
  return readFirstMember(data, unsaidPrefix);
}

/** Returns the JSON text of {@link RunEnd.feedback}; undefined if the run has none. */
export function feedbackInEnd(data: Uint8Array): Uint8Array | undefined {
  return readFirstMember(data, feedbackPrefix);
}

/** Returns the JSON text of the first member if it is an object with this prefix. */
function readFirstMember(data: Uint8Array, prefix: Buffer): Uint8Array | undefined {
  const text = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const first = prefix.length;
  if (!text.subarray(0, first).equals(prefix)) return undefined;
  return text.subarray(first, text.indexOf(endOfFirst, first) + 1);
}

/** A process that has not published an end this long after it ended the run, or claimed the end, is considered dead. */
const publishTimeoutMs = 5_000;
const batchSize = 20;

/**
 * Completes a run whose end is committed: publishes the end of its stream, writes its trace, and marks both as done,
 * which also deletes a run that is not kept. Each step is idempotent and may be repeated by any process.
 *
 * @throws errors of log and database; {@link publishLateEnds} then retries the run.
 */
export async function publishEnd(deps: ExecutorDeps, run: EndedRun, marks?: TraceMarks): Promise<void> {
  const { deploymentId, threadId, runId, attempt, threadStart, kwargs } = run;
  await deps.publisher.publishEnd({
    deploymentId,
    threadId,
    runId,
    attempt,
    threadStart,
    kept: kwargs.resumable,
    data: endData(run, deps.feedbackLinks?.(run)),
    endedAtMicros: Date.parse(run.endedAt) * 1_000,
  });
  await deps.traceRun(run, marks);
  await deps.markEndPublished(run);
}

/**
 * Publishes ends that dead processes did not publish. One process claims each end; if publishing fails, the end can be
 * claimed again when the claim has expired.
 *
 * @throws errors of the database.
 */
export async function publishLateEnds(deps: ExecutorDeps): Promise<void> {
  const late = await claimUnpublishedEnds(deps.database, deps.deploymentId, publishTimeoutMs);
  for (let from = 0; from < late.length; from += batchSize) {
    // In parallel, because each end waits for the next flush of traces to the log.
    const published = late.slice(from, from + batchSize).map((run) =>
      publishEnd(deps, run).catch((err: unknown) => {
        deps.logger.warn({ err, runId: run.runId }, 'end of a run not published; retrying');
        return err;
      }),
    );
    // If the log is unavailable, the other ends would fail as well.
    if ((await Promise.all(published)).some((err) => isRunlakeError(err) && err.retryable)) return;
  }
}

/** Records in Postgres that the end of a run is published. @throws errors of the database. */
export type MarkEndPublished = (run: EndedRun) => Promise<void>;

/** Coalesces calls: ends that arrive while a statement executes are marked together by the next statement. */
export function markEndsTogether(database: Database, resumeMs: number): MarkEndPublished {
  let running: Promise<void> = Promise.resolve();
  let next: { readonly runs: EndedRun[]; readonly marked: Promise<void> } | undefined;

  return async (run) => {
    if (next === undefined) {
      const runs: EndedRun[] = [];
      const marked = running.then(async () => {
        next = undefined;
        await markEndsPublished(database, runs, resumeMs);
      });
      running = marked.catch(() => undefined);
      next = { runs, marked };
    }
    next.runs.push(run);
    await next.marked;
  };
}

/** Returns the feedback links of a run by feedback key; undefined if it has none. */
export type FeedbackLinks = (run: EndedRun) => Readonly<Record<string, string>> | undefined;

/**
 * Creates signed links under which feedback on a run's trace can be left without an API key. Deterministic for a given run.
 */
export function feedbackLinks(deps: {
  readonly signer: TokenSigner;
  /** The public URL of a token. */
  readonly urlOf: (token: string) => string;
  readonly validHours: number;
  /** Owner of the trace of a run without a sender. */
  readonly defaultSender: RunSender;
}): FeedbackLinks {
  return ({ kwargs, sender, runId, endedAt, removed }) => {
    if (removed || kwargs.feedback_keys === undefined) return undefined;
    const { workspaceId, userId } = { ...deps.defaultSender, ...sender };
    const expiresAtSeconds = Math.floor(Date.parse(endedAt) / 1_000) + deps.validHours * 3_600;
    const createLink = (key: string) =>
      deps.urlOf(feedbackToken(deps.signer, { workspaceId, userId, runId, key }, expiresAtSeconds));
    return Object.fromEntries(kwargs.feedback_keys.map((key) => [key, createLink(key)]));
  };
}
