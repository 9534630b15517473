import { isTransient } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { keepRunLinks } from '../../feedback/feedback-links.ts';
import type { Sender } from '../../ingest/accept/draft.ts';
import { isLostRunFailure } from '../runs/end-run.ts';
import {
  claimUnpublishedEnds,
  fitsEndEvent,
  markEndsPublished,
  maxClaimedEnds,
  recordUnreadState,
} from '../runs/published-ends.ts';
import type { EndedRun } from '../runs/run-row.ts';
import { type RunEnd, type StreamPublisher, toStreamStart } from '../streams/stream-types.ts';
import { readNewestState } from '../threads/newest-state.ts';
import type { ThreadDeps } from '../threads/write-threads.ts';
import type { TraceMarks } from '../traces/trace-order.ts';
import type { TraceRun } from './trace-run.ts';

/** What the end of a run needs after its commit. */
export interface PublishEndDeps {
  readonly database: Database;
  readonly publisher: StreamPublisher;
  readonly deploymentId: string;
  /** Writes an ended run as a trace. Idempotent. */
  readonly traceRun: TraceRun;
  readonly markEndPublished: MarkEndPublished;
  /** Creates feedback links for runs that request them. If unset, runs cannot request links. */
  readonly feedbackLinks?: FeedbackLinkFactory | undefined;
  readonly logger: Logger;
}

/** Encodes the {@link RunEnd} of a run as JSON text. */
export function encodeRunEnd(run: EndedRun, feedback: RunEnd['feedback']): Buffer {
  const { status, graphId, error, values, interrupted, interrupts } = run;
  const isUnreported = !run.eventsMissing && error !== undefined && isLostRunFailure(error);
  const end: RunEnd = {
    status,
    graph_id: graphId,
    ...(run.eventsMissing && { events_missing: true }),
    ...(isUnreported && { unsaid: error }),
    ...(!run.eventsMissing && !isUnreported && feedback !== undefined && { feedback }),
    ...(interrupted && { interrupted }),
    ...(interrupts !== undefined && fitsEndEvent(JSON.stringify(interrupts)) && { interrupts }),
    ...(error !== undefined && { error }),
  };
  const text = JSON.stringify(end);
  if (values === undefined || !fitsEndEvent(values)) return Buffer.from(text);
  return Buffer.from(`${text.slice(0, -1)},"values":${values}}`);
}

/** Decodes the output of {@link encodeRunEnd}. */
export function decodeEnd(data: Uint8Array): RunEnd {
  return JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8')) as RunEnd;
}

/**
 * A process that has not published an end this long after ending the run, or after claiming the end, is considered
 * dead.
 */
const publishTimeoutMs = 5_000;

/**
 * Completes a run whose end is committed: publishes the end of its stream, writes its trace, and marks the end as
 * published. Marking also deletes rolled-back and temporary runs. Each step is idempotent; any process may repeat it.
 *
 * @throws errors of log and database; {@link publishLateEnds} then retries the run.
 */
export async function publishEnd(deps: PublishEndDeps, run: EndedRun, marks?: TraceMarks): Promise<void> {
  await deps.publisher.publishEnd({
    ...toStreamStart(run),
    data: encodeRunEnd(run, await deps.feedbackLinks?.(run)),
    endedAtMicros: Date.parse(run.endedAt) * 1_000,
  });
  await deps.traceRun(run, marks);
  await deps.markEndPublished(run);
}

/**
 * Publishes ends that dead processes did not publish. One process claims each end; if it fails to publish the end, any
 * process can claim the end again after the claim has expired.
 *
 * @returns whether there may be more such ends.
 * @throws errors of the database.
 */
export async function publishLateEnds(deps: PublishEndDeps & Pick<ThreadDeps, 'pool'>): Promise<boolean> {
  const late = await claimUnpublishedEnds(deps.database, deps.deploymentId, publishTimeoutMs);
  // Publish all at the same time, because each end waits for the next flush of traces to the log.
  const publications = late.map((run) =>
    readUnreadState(deps, run)
      .then((whole) => publishEnd(deps, whole))
      .catch((err: unknown) => {
        deps.logger.warn({ err, runId: run.runId }, 'end of a run not published; retrying');
        return err;
      }),
  );
  // If the log is unavailable, the other ends would fail as well.
  const isUnavailable = (await Promise.all(publications)).some(isTransient);
  return late.length === maxClaimedEnds && !isUnavailable;
}

/** Adds the stored state to a run whose process has died before it could report it, and writes it to the row of the thread. */
async function readUnreadState(
  { database, pool }: Pick<ThreadDeps, 'database' | 'pool'>,
  run: EndedRun,
): Promise<EndedRun> {
  if (!run.hasUnreadState) return run;
  const { deploymentId, threadId, graphId, kwargs } = run;
  const state = await readNewestState(pool, { deploymentId, threadId, graphId, config: kwargs.config });
  if (state === undefined || !(await recordUnreadState(database, run, state))) return run;
  return { ...run, values: state.values };
}

/** Records in Postgres that the end of a run is published. @throws errors of the database. */
export type MarkEndPublished = (run: EndedRun) => Promise<void>;

/**
 * Returns a function that coalesces calls: ends that arrive while a statement executes are marked together by the next
 * statement.
 */
export function createEndMarker(database: Database, resumeMs: number): MarkEndPublished {
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

/**
 * Returns the feedback links of a run by feedback key; undefined if the run has none.
 *
 * @throws errors of the database.
 */
export type FeedbackLinkFactory = (run: EndedRun) => Promise<RunEnd['feedback']>;

/**
 * Returns a function that creates links, which accept feedback on a run's trace without an API key. The links of a run
 * are always the same.
 */
export function createFeedbackLinks(deps: {
  readonly database: Database;
  readonly secretKey: string;
  /** Returns the public URL for a token. */
  readonly createUrl: (token: string) => string;
  readonly validHours: number;
  /** Trace owner for runs without a sender. */
  readonly defaultSender: Sender;
}): FeedbackLinkFactory {
  return async ({ kwargs: { feedback_keys: keys }, sender, runId, endedAt, removed }) => {
    if (removed || keys === undefined) return undefined;
    const { workspaceId, userId } = { ...deps.defaultSender, ...sender };
    const expiresAtSeconds = Math.floor(Date.parse(endedAt) / 1_000) + deps.validHours * 3_600;
    const ids = await keepRunLinks(deps, { workspaceId, userId, runId }, keys, expiresAtSeconds);
    return Object.fromEntries(keys.map((key, index) => [key, deps.createUrl(ids[index] as string)]));
  };
}
