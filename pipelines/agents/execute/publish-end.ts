import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { claimUnpublishedEnds } from '../runs/claim-unpublished-ends.ts';
import type { EndedRun } from '../runs/run-row.ts';
import type { TraceMarks } from '../traces/trace-order.ts';
import { endData } from './end-data.ts';
import type { ExecutorPorts } from './executor.ts';

/** A process that ended a run, or claimed its end, and has not published it by then is taken to have died. */
const publishWithinMs = 5_000;
const lateTogether = 20;

/**
 * What follows the committed end of a run: its trace, the end of its stream, and the note that both are done, with which a run
 * that is not to be kept goes. Each may be repeated, from any process.
 *
 * @throws what log and database throw; the run is then found by {@link publishLateEnds}.
 */
export async function publishEnd(ports: ExecutorPorts, run: EndedRun, marks?: TraceMarks): Promise<void> {
  const { deploymentId, threadId, runId, attempt, threadStart, kwargs } = run;
  await ports.publisher.publishEnd({
    deploymentId,
    threadId,
    runId,
    attempt,
    threadStart,
    kept: kwargs.resumable,
    data: endData(run, ports.feedbackLinks?.(run)),
    endedAtMicros: Date.parse(run.endedAt) * 1_000,
  });
  await ports.traceRun(run, marks);
  await ports.markEndPublished(run);
}

/**
 * Publishes the ends of runs that a process left behind. One process claims each; an end that it cannot publish can be claimed again when
 * the claim has run out. @throws what the database throws.
 */
export async function publishLateEnds(ports: ExecutorPorts): Promise<void> {
  const late = await claimUnpublishedEnds(ports.database, ports.deploymentId, publishWithinMs);
  for (let from = 0; from < late.length; from += lateTogether) {
    // Together, as each waits for the moment at which traces go into the log.
    const published = late.slice(from, from + lateTogether).map((run) =>
      publishEnd(ports, run).catch((err: unknown) => {
        ports.logger.warn({ err, runId: run.runId }, 'the end of a run could not be published: trying again');
        return err;
      }),
    );
    // A log that takes nothing now takes the others no better.
    if ((await Promise.all(published)).some((err) => isRunlakeError(err) && err.retryable)) return;
  }
}
