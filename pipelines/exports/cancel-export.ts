import { fault } from '../../infra/errors/runlake-error.ts';
import type { ExportPorts } from './export-ports.ts';
import { finishExport } from './finish-export.ts';
import { type ExportWithProgress, readExport } from './read-export.ts';

/**
 * Cancels an export or a schedule, with those of its runs that are not finished; workers notice within a second or two.
 * Exports that a schedule has spawned go on. One that is cancelled already stays so.
 *
 * @throws NOT_FOUND; EXPORT_FINISHED where it ended otherwise.
 */
export async function cancelExport(
  ports: ExportPorts,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const { database } = ports;
  await readExport(database, workspaceId, exportId);
  await finishExport(ports, exportId, { to: 'CANCELLED', reason: 'It was cancelled.' });
  const now = await readExport(database, workspaceId, exportId);
  if (now.status !== 'CANCELLED') throw fault('EXPORT_FINISHED', { status: now.status });
  return now;
}
