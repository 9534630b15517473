import type { ExportDeps } from './export-deps.ts';

type Deps = Pick<ExportDeps, 'jobs' | 'logger'>;

/**
 * Queues a job that coordinates the export. The job id is the export id, so at most one job per export is queued. A
 * failure is only logged: the sweep finds the export by its row.
 */
export async function enqueueExport({ jobs, logger }: Deps, exportId: string): Promise<void> {
  await jobs
    .enqueue('coordinate-export', { export_id: exportId }, { jobId: exportId })
    .catch((err) => logger.warn({ err, exportId }, 'cannot queue a bulk export; the next sweep queues it'));
}

/**
 * Queues a job for an export run, at once or after `delayMs`. The job id contains the fence, so that a job for the next
 * attempt is accepted while the job of the last one is still ending. A failure is only logged, as above.
 */
export async function enqueueRun(
  { jobs, logger }: Deps,
  { id, fence }: { readonly id: string; readonly fence: number },
  delayMs = 0,
): Promise<void> {
  await jobs
    .enqueue('export-run', { run_id: id }, { jobId: `${id}/${fence}`, delayMs })
    .catch((err) => logger.warn({ err, runId: id }, 'cannot queue an export run; the next sweep queues it'));
}
