import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { claimUnpublishedEnds } from '../runs/claim-unpublished-ends.ts';
import type { EndedRun } from '../runs/run-row.ts';
import type { TraceMarks } from '../traces/trace-order.ts';
import { endData } from './end-data.ts';
import type { ExecutorDeps } from './executor.ts';

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
