import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { ExportDeps } from './export-deps.ts';
import { finishExport } from './finish-export.ts';
import { type ExportWithProgress, readExport } from './read-export.ts';

/**
 * Cancels an export or a schedule, and its unfinished export runs; workers notice within two seconds. Exports that a
 * schedule has already spawned continue. Cancelling a cancelled export has no effect.
 *
 * @throws NOT_FOUND; EXPORT_FINISHED if the export ended in another state.
 */
export async function cancelExport(
  deps: ExportDeps,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const { database } = deps;
  await readExport(database, workspaceId, exportId);
  await finishExport(deps, exportId, { to: 'CANCELLED', reason: 'It was cancelled.' });
  const now = await readExport(database, workspaceId, exportId);
  if (now.status !== 'CANCELLED') throw runlakeError('EXPORT_FINISHED', { status: now.status });
  return now;
}
