import { fault } from '../../infra/errors/runlake-error.ts';
import { liveProjectIds } from './live-projects.ts';
import { locateRun } from './locate-run.ts';
import type { ReadPorts } from './query-runs.ts';
import { readRunRows } from './read-run-rows.ts';
import { readSurroundings } from './read-surroundings.ts';
import { selectAll } from './run-select.ts';
import { JsonChunks, writeRun } from './write-runs.ts';

export interface RunRequest {
  readonly tenantId: string;
  readonly runId: string;
  /** The project in which the run has to lie. */
  readonly projectId?: string | undefined;
  readonly withSerialized: boolean;
}

/**
 * One run with everything that it has, as JSON.
 * @throws NOT_FOUND where the workspace has no such run, or its project or itself was deleted; what the stores throw.
 */
export async function getRun(ports: ReadPorts, request: RunRequest): Promise<Buffer> {
  const { tenantId, runId, projectId } = request;
  const selected = selectAll(request.withSerialized ? [] : ['serialized']);
  const key = await locateRun(ports.warehouse, tenantId, runId);
  if (key === undefined || (projectId !== undefined && key.projectId !== projectId)) throw notFound(runId);
  const [live, rows] = await Promise.all([
    liveProjectIds(ports.database, tenantId, [key.projectId]),
    readRunRows(ports.warehouse, tenantId, [key], selected.columns),
  ]);
  const [row] = rows;
  if (live.length === 0 || row === undefined) throw notFound(runId);
  const around = await readSurroundings(ports, tenantId, rows, selected.surroundings);
  const json = new JsonChunks();
  writeRun(json, row, selected.fields, around);
  return json.toBuffer();
}

function notFound(runId: string): Error {
  return fault('NOT_FOUND', { what: `Run ${runId}` });
}
