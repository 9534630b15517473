import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { liveProjectIds } from './live-projects.ts';
import { locateRun } from './locate-run.ts';
import type { ReadDeps } from './query-runs.ts';
import { readRunRows } from './read-run-rows.ts';
import { readRelatedData } from './read-surroundings.ts';
import { selectAll } from './run-select.ts';
import { JsonChunks, writeRun } from './write-runs.ts';

export interface RunRequest {
  readonly tenantId: string;
  readonly runId: string;
  /** If present, the run must be in this project. */
  readonly projectId?: string | undefined;
  readonly withSerialized: boolean;
}

/**
 * Reads one run with all its fields, as JSON.
 *
 * @throws NOT_FOUND if the workspace has no such run, or the run or its project was deleted; errors of the stores.
 */
export async function getRun(deps: ReadDeps, request: RunRequest): Promise<Buffer> {
  const { tenantId, runId, projectId } = request;
  const selected = selectAll(request.withSerialized ? [] : ['serialized']);
  const key = await locateRun(deps.clickhouse, tenantId, runId);
  if (key === undefined || (projectId !== undefined && key.projectId !== projectId)) throw notFound(runId);
  const [live, rows] = await Promise.all([
    liveProjectIds(deps.database, tenantId, [key.projectId]),
    readRunRows(deps.clickhouse, tenantId, [key], selected.columns),
  ]);
  const [row] = rows;
  if (live.length === 0 || row === undefined) throw notFound(runId);
  const related = await readRelatedData(deps, tenantId, rows, selected.relatedKinds);
  const json = new JsonChunks();
  writeRun(json, row, selected.fields, related);
  return json.toBuffer();
}

function notFound(runId: string): Error {
  return runlakeError('NOT_FOUND', { what: `Run ${runId}` });
}
