/**
 * The workers of bulk exports in one process: they start exports, make the files of runs, and look everything over from time to time.
 * How many may go on beside each other, in this process and others, is decided by rows alone; here the number in this process.
 *
 * At the end nothing more is taken up; runs that are worked on are given back at once, without a retry, for whoever comes next.
 */
import { fault } from '../../infra/errors/runlake-error.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { coordinateExport } from './coordinate-export.ts';
import { unfinishedExports } from './export-metrics.ts';
import type { WorkPorts } from './export-ports.ts';
import { FairAttempts } from './runs/fair-attempts.ts';
import { LiveAttempts } from './runs/live-attempts.ts';
import { sweepExports } from './sweep-exports.ts';
import { openWorkFolders } from './work-folders.ts';

export interface ExportWorkers {
  /** Gives runs back; resolves when nothing is worked on. The jobs go on to be taken, and do nothing. */
  stop(): Promise<void>;
}

/** @throws WORK_FILE_UNUSABLE where the work folder cannot be used. */
export async function startExportWorkers(
  ports: WorkPorts & { readonly jobs: Jobs },
  options: { readonly workFolder: string; readonly concurrency: number; readonly sweepMs: number },
): Promise<ExportWorkers> {
  const { database, jobs, limits, logger } = ports;
  const folders = await openWorkFolders(options.workFolder);
  const attempts = new LiveAttempts(database, limits, logger);
  const underWay = new Set<Promise<void>>();
  const track = (work: Promise<void>) => {
    const tracked = work.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
    return tracked;
  };
  jobs.work('coordinate-export', ({ export_id: exportId }, { signal }) =>
    attempts.stopping ? Promise.resolve() : coordinateExport(ports, exportId, signal),
  );
  const fair = new FairAttempts({ ...ports, attempts, folders }, options.concurrency);
  jobs.work('export-run', () => track(fair.attemptNext()), { concurrency: fair.maxJobs });
  // Begins with one at once, which finds what was going on when the last process ended.
  let nextSweep: NodeJS.Timeout | undefined;
  const stopped = new AbortController();
  const sweep = async () => {
    await track(sweepExports(ports, stopped.signal));
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
      stopped.abort(fault('DRAINING'));
      clearTimeout(nextSweep);
      await Promise.allSettled(underWay);
      hide();
      await folders.close();
    },
  };
}
