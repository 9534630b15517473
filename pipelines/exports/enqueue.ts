import type { ExportPorts } from './export-ports.ts';

type Ports = Pick<ExportPorts, 'jobs' | 'logger'>;

/**
 * Has somebody look at an export. Nothing is lost where that fails: the sweep finds the export by its row. One look at a time for
 * each export; who needs another one afterwards leaves it to the sweep.
 */
export async function enqueueExport({ jobs, logger }: Ports, exportId: string): Promise<void> {
  await jobs
    .enqueue('coordinate-export', { export_id: exportId }, { jobId: exportId })
    .catch((err) => logger.warn({ err, exportId }, 'a bulk export could not be queued; the next sweep does it'));
}

/**
 * Has somebody look at a run, at once or when its pause is over. The id of the job tells attempts apart, so that a look for the next one
 * is taken also while the job of the last one is still ending. Nothing is lost where it fails, as with exports.
 */
export async function enqueueRun(
  { jobs, logger }: Ports,
  { id, fence }: { readonly id: string; readonly fence: number },
  delayMs = 0,
): Promise<void> {
  await jobs
    .enqueue('export-run', { run_id: id }, { jobId: `${id}/${fence}`, delayMs })
    .catch((err) => logger.warn({ err, runId: id }, 'a run of an export could not be queued; the next sweep does it'));
}
