import { type LocatedRun, locateRuns, readLiveProjectIds } from '../runs/locate-run.ts';
import { type ReadDeps, readEachRun } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { listQueueRuns, type PlacedQueueRun, type Section } from './queue-runs.ts';

/** An entry of a queue whose run is stored. */
export interface QueueItem extends PlacedQueueRun {
  /** Project and start time of the run. */
  readonly location: LocatedRun;
}

/**
 * Lists the runs of a queue that are stored. Runs that were deleted or have expired are omitted, so that pages are
 * complete and the numbers agree with them.
 */
export async function listStoredQueueRuns(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<QueueItem[]> {
  const listed = await listQueueRuns(database, caller, queueId, sections);
  const located = await locateRuns(
    clickhouse,
    caller.workspaceId,
    listed.map((run) => run.run_id),
  );
  const projectIds = [...new Set(located.map((run) => run.projectId))];
  const live = new Set(await readLiveProjectIds(database, caller.workspaceId, projectIds));
  const stored = new Map(located.filter(({ projectId }) => live.has(projectId)).map((run) => [run.runId, run]));
  return listed.flatMap((run) => {
    const location = stored.get(run.run_id);
    return location === undefined ? [] : [{ ...run, location }];
  });
}

/**
 * Reads runs of a queue as a list of JSON objects: the run, with the fields of {@link QueueRun}.
 *
 * @throws BAD_REQUEST if the runs are too large for one response; errors of the stores.
 */
export async function readQueueRuns(deps: ReadDeps, tenantId: string, listed: readonly QueueItem[]): Promise<string[]> {
  const runIds = listed.map((run) => run.run_id);
  if (runIds.length === 0) return [];
  const query = { tenantId, runIds, filter: {}, selected: selectFields(undefined), order: 'asc' } as const;
  const runs = new Map((await readEachRun(deps, query)).map(({ row, json }) => [row.key.runId, json]));
  return listed.flatMap(({ run_id, location: _location, position: _position, ...queueRun }) => {
    const json = runs.get(run_id);
    return json === undefined ? [] : [`${json.slice(0, -1)},${JSON.stringify(queueRun).slice(1)}`];
  });
}
