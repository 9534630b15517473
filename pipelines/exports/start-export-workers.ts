/**
 * The bulk export workers of one process: they start exports, make the files of export runs, and sweep periodically.
 * Rows in Postgres limit the concurrency over all processes; `concurrency` limits it in this process.
 *
 * On stop the process claims nothing more. Its running export runs are released at once, without a retry, so that
 * another worker can claim them.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { coordinateExport } from './coordinate-export.ts';
import type { WorkDeps } from './export-deps.ts';
import { unfinishedExports } from './export-metrics.ts';
import { FairAttempts } from './runs/fair-attempts.ts';
import { LiveAttempts } from './runs/live-attempts.ts';
import { sweepExports } from './sweep-exports.ts';
import { openWorkFolders } from './work-folders.ts';

export interface ExportWorkers {
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
