import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { advanceExport, coordinateExport } from './coordinate-export.ts';
import { eachAtMost } from './each-at-most.ts';
import { enqueueRun } from './enqueue.ts';
import type { WorkDeps } from './export-deps.ts';
import { unfinishedExports } from './export-metrics.ts';
import { finishExport } from './finish-export.ts';
import { FairAttempts, LiveAttempts } from './runs/live-attempts.ts';
import { dueRuns } from './runs/run-record.ts';
import { tidyRun } from './runs/tidy-run.ts';
import { spawnDue } from './schedules.ts';
import { openWorkFolders } from './work-folders.ts';

/**
 * Sweeps all exports, periodically and after a start. The content of the queues can be derived from the rows alone, so
 * that the sweep rebuilds a lost queue and continues what a crash interrupted between two steps.
 *
 *   1. Exports and schedules of deleted workspaces become CANCELLED, because no caller can cancel them any more.
 *   2. Exports past their timeout become TIMEDOUT, with their export runs.
 *   3. Schedules spawn their due exports.
 *   4. CREATED exports are started, for each workspace up to its limit.
 *   5. Export runs that a worker can claim are queued.
 *   6. Work on buckets: RUNNING exports without unfinished runs get their manifest and end; unrecorded objects of ended
 *      runs are removed.
 *
 * None of this runs as a job, because it rebuilds the queues. Any number of processes may sweep at the same time. Job
 * ids keep jobs that are already queued from being added again. An error in one step does not keep the others from
 * running.
 *
 * Buckets may be slow, or hang until their client times out. They therefore come last: a sweep processes a random part
 * of them with limited concurrency, and starts none after a deadline, so that no bucket delays the next sweep for long,
 * or another bucket for ever.
 */

/** Runs that ended earlier are no longer tidied: their bucket probably stays unreachable. */
const maxTidyAgeHours = 24;
const maxConcurrentTidies = 20;
/** Each manifest is held in memory. */
const maxConcurrentManifests = 8;
/** Maximum number of buckets per sweep, for each of the two kinds of work. */
const maxBucketsPerSweep = 200;
/** A sweep starts no work on a bucket after this time. */
const bucketDeadlineMs = 15_000;

/** @param signal If aborted, no further bucket is processed, and writing manifests stops. */
export async function sweepExports(deps: WorkDeps, signal?: AbortSignal): Promise<void> {
  const runStep = (name: string, step: Promise<void>) =>
    step.catch((err) => deps.logger.warn({ err, step: name }, 'a step of the export sweep failed'));
  await runStep('orphans', cancelOrphans(deps));
  await runStep('overdue exports', timeOutExports(deps));
  await runStep('schedules', spawnDue(deps));
  await runStep('waiting exports', startExports(deps));
  await runStep('runs', queueRuns(deps));
  await Promise.all([runStep('manifests', endExports(deps, signal)), runStep('tidying', tidyRuns(deps, signal))]);
}

async function cancelOrphans(deps: WorkDeps): Promise<void> {
  const orphans = await deps.database.query<{ id: string }>(
    `SELECT e.id FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id
     WHERE e.finished_at IS NULL AND w.deleted_at IS NOT NULL`,
  );
  for (const { id } of orphans) await finishExport(deps, id, { to: 'CANCELLED', reason: 'Its workspace was deleted.' });
}

async function timeOutExports(deps: WorkDeps): Promise<void> {
  const { database, limits, now } = deps;
  const startedBefore = new Date(now().getTime() - limits.exportTimeoutMs).toISOString();
  const overdue = await database.query<{ id: string }>(
    `SELECT id FROM bulk_exports WHERE status = 'RUNNING' AND interval_hours IS NULL AND started_at <= $1`,
    [startedBefore],
  );
  const reason = `It took longer than ${limits.exportTimeoutMs} ms (RUNLAKE_EXPORT_TIMEOUT_MS). Export a smaller range, or fewer fields.`;
  for (const { id } of overdue) await finishExport(deps, id, { to: 'TIMEDOUT', reason });
}

async function startExports(deps: WorkDeps): Promise<void> {
  const waiting = await deps.database.query<{ id: string }>(
    `SELECT id FROM (
       SELECT id, row_number() OVER (PARTITION BY workspace_id ORDER BY created_at, id) AS ordinal FROM bulk_exports
       WHERE status = 'CREATED') AS waiting
     WHERE ordinal <= $1`,
    [deps.limits.exportsPerWorkspace],
  );
  for (const { id } of waiting) {
    await coordinateExport(deps, id, undefined, 0).catch((err) =>
      deps.logger.warn({ err, exportId: id }, 'cannot start a bulk export'),
    );
  }
}

async function queueRuns(deps: WorkDeps): Promise<void> {
  for (const run of await dueRuns(deps.database, deps.limits, deps.now())) await enqueueRun(deps, run);
}

async function endExports(deps: WorkDeps, signal?: AbortSignal): Promise<void> {
  const ended = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports AS e WHERE status = 'RUNNING' AND interval_hours IS NULL
       AND NOT EXISTS (SELECT FROM bulk_export_runs WHERE bulk_export_id = e.id AND finished_at IS NULL)
     ORDER BY random() LIMIT $1`,
    [maxBucketsPerSweep],
  );
  const end = ({ id }: { readonly id: string }) =>
    advanceExport(deps, id, signal).catch((err) => deps.logger.warn({ err, exportId: id }, 'cannot end a bulk export'));
  await eachAtMost(maxConcurrentManifests, ended, end, bucketDeadline(signal));
}

async function tidyRuns(deps: WorkDeps, signal?: AbortSignal): Promise<void> {
  const untidy = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_export_runs
     WHERE finished_at IS NOT NULL AND pending_upload IS NOT NULL AND (lease_until IS NULL OR lease_until <= clock_timestamp())
       AND finished_at > $1
     ORDER BY random() LIMIT $2`,
    [new Date(deps.now().getTime() - maxTidyAgeHours * 3_600_000).toISOString(), maxBucketsPerSweep],
  );
  await eachAtMost(maxConcurrentTidies, untidy, (run) => tidyRun(deps, run), bucketDeadline(signal));
}

function bucketDeadline(signal?: AbortSignal): AbortSignal {
  const overdue = AbortSignal.timeout(bucketDeadlineMs);
  return signal === undefined ? overdue : AbortSignal.any([overdue, signal]);
}

/**
 * The bulk export workers of one process: they start exports, make the files of export runs, and sweep periodically.
 * Rows in Postgres limit the concurrency over all processes; `concurrency` limits it in this process.
 *
 * On stop the process claims nothing more. Its running export runs are released at once, without a retry, so that
 * another worker can claim them.
 */

interface ExportWorkers {
  /** Releases the export runs; resolves when no work is left. Jobs are still taken from the queue, but do nothing. */
  stop(): Promise<void>;
}

/** @throws WORK_FILE_UNUSABLE if the work folder cannot be used. */
export async function startExportWorkers(
  deps: WorkDeps & { readonly jobs: Jobs },
  options: { readonly workFolder: string; readonly concurrency: number; readonly sweepMs: number },
): Promise<ExportWorkers> {
  const { database, jobs, limits, logger } = deps;
  const folders = await openWorkFolders(options.workFolder);
  const attempts = new LiveAttempts(database, limits, logger);
  const inFlight = new Set<Promise<void>>();
  const track = (work: Promise<void>) => {
    const tracked = work.finally(() => inFlight.delete(tracked));
    inFlight.add(tracked);
    return tracked;
  };
  jobs.work('coordinate-export', ({ export_id: exportId }, { signal }) =>
    attempts.stopping ? Promise.resolve() : coordinateExport(deps, exportId, signal),
  );
  const fair = new FairAttempts({ ...deps, attempts, folders }, options.concurrency);
  jobs.work('export-run', () => track(fair.attemptNext()), { concurrency: fair.maxJobs });
  // The first sweep starts at once and continues what was interrupted when the last process ended.
  let nextSweep: NodeJS.Timeout | undefined;
  const stopped = new AbortController();
  const sweep = async () => {
    await track(sweepExports(deps, stopped.signal));
    if (!attempts.stopping) nextSweep = setTimeout(() => void sweep(), options.sweepMs);
  };
  void sweep();
  const hide = unfinishedExports.showing(async () => {
    const counted = await database.query<{ status: string; value: number }>(
      `SELECT status, count(*) AS value FROM bulk_exports WHERE finished_at IS NULL AND interval_hours IS NULL GROUP BY status`,
    );
    return counted.map(({ status, value }) => ({ labels: { status }, value }));
  });
  return {
    stop: async () => {
      attempts.stop();
      stopped.abort(runlakeError('DRAINING'));
      clearTimeout(nextSweep);
      await Promise.allSettled(inFlight);
      hide();
      await folders.close();
    },
  };
}
