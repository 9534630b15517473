import { locateRuns, readLiveProjectIds } from '../runs/locate-run.ts';
import { type ReadDeps, readEachRun } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { listQueueRuns, type QueueRun, type Section } from './queue-runs.ts';

/**
 * The runs of a queue that are stored. Runs that were deleted or have expired are left out, so that pages are complete
 * and numbers agree with them.
 */
export async function listStoredQueueRuns(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<QueueRun[]> {
  const listed = await listQueueRuns(database, caller, queueId, sections);
  const located = await locateRuns(
    clickhouse,
    caller.workspaceId,
    listed.map((run) => run.run_id),
  );
  const projectIds = [...new Set(located.map((run) => run.projectId))];
  const live = new Set(await readLiveProjectIds(database, caller.workspaceId, projectIds));
  const stored = new Set(located.filter(({ projectId }) => live.has(projectId)).map(({ runId }) => runId));
  return listed.filter((run) => stored.has(run.run_id));
}

/**
 * Reads runs of a queue as a list of JSON objects: the run, with the fields of {@link QueueRun}.
 *
 * @throws BAD_REQUEST if the runs are too large for one response; errors of the stores.
 */
export async function readQueueRuns(deps: ReadDeps, tenantId: string, listed: readonly QueueRun[]): Promise<string[]> {
  const runIds = listed.map((run) => run.run_id);
  if (runIds.length === 0) return [];
  const query = { tenantId, runIds, filter: {}, selected: selectFields(undefined), order: 'asc' } as const;
  const runs = new Map((await readEachRun(deps, query)).map(({ row, json }) => [row.key.runId, json]));
  return listed.flatMap(({ run_id, ...queueRun }) => {
    const json = runs.get(run_id);
    return json === undefined ? [] : [`${json.slice(0, -1)},${JSON.stringify(queueRun).slice(1)}`];
  });
}
