import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type LocatedRun, locateRuns, readLiveProjectIds, requireProjects } from '../runs/locate-run.ts';
import { type ReadDeps, readEachRun } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import { findStoredThreads } from '../runs/threads.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { listQueueRuns, type NewQueueThread, type PlacedQueueRun, type Section } from './queue-runs.ts';

/** A run of a queue that is stored, or a thread. */
export interface QueueItem extends PlacedQueueRun {
  /** Project and start time of the run; undefined for a thread. */
  readonly location: LocatedRun | undefined;
}

/** A run of a queue that is stored. */
export interface StoredQueueRun extends QueueItem {
  readonly run_id: string;
  readonly location: LocatedRun;
}

export const isStoredRun = (item: QueueItem): item is StoredQueueRun => item.location !== undefined;

/**
 * The runs of a queue that are stored, and its threads. What was deleted or, of runs, has expired is left out, so that
 * pages are complete and numbers agree with them. A thread stays while its project exists.
 */
export async function listStoredItems(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<QueueItem[]> {
  const listed = await listQueueRuns(database, caller, queueId, sections);
  const runIds = listed.flatMap(({ run_id }) => run_id ?? []);
  const located = await locateRuns(clickhouse, caller.workspaceId, runIds);
  const projectIds = [...located.map((run) => run.projectId), ...listed.flatMap(({ project_id }) => project_id ?? [])];
  const live = new Set(await readLiveProjectIds(database, caller.workspaceId, [...new Set(projectIds)]));
  const stored = new Map(located.map((run) => [run.runId, run]));
  return listed.flatMap((item) => {
    const location = item.run_id === null ? undefined : stored.get(item.run_id);
    return live.has(location?.projectId ?? item.project_id ?? '') ? [{ ...item, location }] : [];
  });
}

/** The runs among {@link listStoredItems}. */
export async function listStoredQueueRuns(
  deps: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<StoredQueueRun[]> {
  return (await listStoredItems(deps, caller, queueId, sections)).filter(isStoredRun);
}

/** @throws NOT_FOUND unless each thread has a stored trace in its project, and the workspace has the project. */
export async function requireThreads(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  tenantId: string,
  threads: readonly NewQueueThread[],
): Promise<void> {
  const projectIds = [...new Set(threads.map(({ projectId }) => projectId))];
  await requireProjects(database, tenantId, projectIds);
  for (const projectId of projectIds) {
    const ofProject = threads.filter((thread) => thread.projectId === projectId);
    const threadIds = [...new Set(ofProject.map(({ threadId }) => threadId))];
    const stored = new Set(await findStoredThreads(clickhouse, { tenantId, projectId, threadIds }));
    const missing = threadIds.find((id) => !stored.has(id));
    if (missing !== undefined) throw runlakeError('NOT_FOUND', { what: `Thread ${missing}` });
  }
}

/**
 * Reads runs of a queue as a list of JSON objects: the run, with the fields of {@link QueueRun}.
 *
 * @throws BAD_REQUEST if the runs are too large for one response; errors of the stores.
 */
export async function readQueueRuns(
  deps: ReadDeps,
  tenantId: string,
  listed: readonly StoredQueueRun[],
): Promise<string[]> {
  const runIds = listed.map((run) => run.run_id);
  if (runIds.length === 0) return [];
  const query = { tenantId, runIds, filter: {}, selected: selectFields(undefined), order: 'asc' } as const;
  const runs = new Map((await readEachRun(deps, query)).map(({ row, json }) => [row.key.runId, json]));
  return listed.flatMap(({ run_id, ...item }) => {
    const json = runs.get(run_id);
    if (json === undefined) return [];
    const { location: _location, position: _position, section: _section, project_id: _projectId, ...rest } = item;
    const { thread_id: _threadId, ...queueRun } = rest;
    return [`${json.slice(0, -1)},${JSON.stringify(queueRun).slice(1)}`];
  });
}
