/** Traces and threads that are shared by means of a token; see `pipelines/shares/share-tokens.ts`. */
import { createHash } from 'node:crypto';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import {
  createShare,
  deleteShares,
  openShareToken,
  readShare,
  type ShareDeps,
  type SharedThread,
} from '../shares/share-tokens.ts';
import type { RunFilterConditions } from './filter/sql-terms.ts';
import { locateRun, type NamedRun, readLiveProjectIds, requireProjects } from './locate-run.ts';
import type { RunFilter } from './run-scope.ts';
import { addThreadCondition, countThreads } from './threads.ts';

export interface SharedTraceDeps extends ShareDeps {
  readonly clickhouse: ClickHouse;
}

const identifyTrace = ({ tenantId: workspaceId }: Pick<NamedRun, 'tenantId'>, targetId: string) =>
  ({ kind: 'trace', workspaceId, targetId }) as const;

/**
 * Shares the trace of a run and returns the token. If the trace is already shared, returns the existing token.
 *
 * @throws NOT_FOUND if there is no such run; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function shareTrace(deps: SharedTraceDeps, run: NamedRun, userId: string): Promise<string> {
  return createShare(deps, identifyTrace(run, await findTrace(deps, run)), { userId });
}

/**
 * Returns the token with which the trace of a run is shared; undefined if the trace is not shared.
 *
 * @throws NOT_FOUND if there is no such run; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function readRunShare(deps: SharedTraceDeps, run: NamedRun): Promise<string | undefined> {
  return readShare(deps, identifyTrace(run, await findTrace(deps, run)));
}

/**
 * Ends the sharing of the trace of a run; does nothing if the trace is not shared. The run itself does not have to
 * exist any more.
 */
export async function unshareTrace(
  { clickhouse, database }: Pick<SharedTraceDeps, 'clickhouse' | 'database'>,
  run: Pick<NamedRun, 'tenantId' | 'runId'>,
): Promise<void> {
  const located = await locateRun(clickhouse, run.tenantId, run.runId);
  await deleteShares(database, identifyTrace(run, run.runId), [run.runId, located?.traceId ?? run.runId]);
}

async function findTrace({ clickhouse, database }: SharedTraceDeps, run: NamedRun): Promise<string> {
  const located = await locateRun(clickhouse, run.tenantId, run.runId);
  if (
    located === undefined ||
    located.projectId !== (run.projectId ?? located.projectId) ||
    located.traceId !== (run.traceId ?? located.traceId) ||
    (await readLiveProjectIds(database, run.tenantId, [located.projectId])).length === 0
  )
    throw runlakeError('NOT_FOUND', { what: `Run ${run.runId}` });
  return located.traceId;
}

/** A thread named in a request. All its traces are shared, including traces that are added later. */
export interface ThreadToShare extends SharedThread {
  readonly tenantId: string;
}

const identifyThread = ({ tenantId: workspaceId, projectId, threadId }: ThreadToShare) => {
  const hash = createHash('sha256').update(`${projectId} ${threadId}`).digest('hex');
  const targetId = hash.slice(0, 32).replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  return { kind: 'thread', workspaceId, targetId } as const;
};

/**
 * Shares a thread and returns the token. If the thread is already shared, returns the existing token.
 *
 * @throws NOT_FOUND if the project or the thread does not exist; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function shareThread(deps: SharedTraceDeps, thread: ThreadToShare, userId: string): Promise<string> {
  await requireProjects(deps.database, thread.tenantId, [thread.projectId]);
  if ((await countThreads(deps.clickhouse, buildThreadQuery(thread))) === 0) {
    throw runlakeError('NOT_FOUND', { what: `Thread ${thread.threadId}` });
  }
  return createShare(deps, identifyThread(thread), { userId, thread });
}

/**
 * Returns the token of a thread; undefined if the thread is not shared.
 *
 * @throws the same errors as {@link shareThread}.
 */
export async function readThreadShare(deps: SharedTraceDeps, thread: ThreadToShare): Promise<string | undefined> {
  await requireProjects(deps.database, thread.tenantId, [thread.projectId]);
  return readShare(deps, identifyThread(thread));
}

/**
 * Ends the sharing of a thread; does nothing if the thread is not shared. The thread itself does not have to exist any
 * more.
 */
export async function unshareThread(database: Database, thread: ThreadToShare): Promise<void> {
  const { targetId, ...of } = identifyThread(thread);
  await deleteShares(database, of, [targetId]);
}

function buildThreadQuery({ tenantId, projectId, threadId }: ThreadToShare) {
  return { tenantId, projectId, filter: { conditions: addThreadCondition([threadId], undefined) } };
}

/** The runs that a token gives access to. */
export interface SharedRuns {
  readonly organizationId: string;
  readonly tenantId: string;
  /** Set only if a single trace is shared. */
  readonly traceId?: string;
  readonly projectIds?: readonly string[];
  readonly filter: RunFilter;
}

/**
 * Finds the runs that a token gives access to: the runs of a trace, or of the traces of a thread.
 *
 * @param conditions Further conditions on the runs.
 * @throws NOT_FOUND if the token gives access to none, or if their workspace is deleted.
 */
export async function openShare(
  database: Database,
  token: string,
  conditions: RunFilterConditions = { run: [], trace: [], tree: [] },
): Promise<SharedRuns> {
  const share = await openShareToken(database, ['trace', 'thread'], token);
  const { organizationId, tenantId, targetId: traceId, projectId, threadId } = share;
  if (projectId === null || threadId === null) {
    return { organizationId, tenantId, traceId, filter: { traceId, conditions } };
  }
  const { run: inThread } = addThreadCondition([threadId], undefined);
  const filter = { conditions: { ...conditions, trace: [...inThread, ...conditions.trace] } };
  return { organizationId, tenantId, projectIds: [projectId], filter };
}
