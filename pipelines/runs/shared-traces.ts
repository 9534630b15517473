/** Traces that are shared by a token, see `pipelines/shares/share-tokens.ts`. */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { createShare, deleteShares, openShareToken, readShare, type ShareDeps } from '../shares/share-tokens.ts';
import { locateRun, readLiveProjectIds } from './locate-run.ts';

export interface SharedTraceDeps extends ShareDeps {
  readonly clickhouse: ClickHouse;
}

/** A run of a request. Its trace is shared as a whole. */
export interface SharedRun {
  readonly tenantId: string;
  readonly runId: string;
  /** If present, the run must be in this project. */
  readonly projectId?: string | undefined;
  /** If present, the run must be in this trace. */
  readonly traceId?: string | undefined;
}

const identifyTrace = ({ tenantId: workspaceId }: Pick<SharedRun, 'tenantId'>, targetId: string) =>
  ({ kind: 'trace', workspaceId, targetId }) as const;

/**
 * Shares the trace of a run, and returns its token; the existing token if the trace is already shared.
 *
 * @throws NOT_FOUND if there is no such run; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function shareTrace(deps: SharedTraceDeps, run: SharedRun, userId: string): Promise<string> {
  return createShare(deps, identifyTrace(run, await findTrace(deps, run)), { userId });
}

/**
 * Returns the token of the trace of a run; undefined if the trace is not shared.
 *
 * @throws NOT_FOUND if there is no such run; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function readShareOfRun(deps: SharedTraceDeps, run: SharedRun): Promise<string | undefined> {
  return readShare(deps, identifyTrace(run, await findTrace(deps, run)));
}

/** Ends the sharing of the trace of a run; does nothing if it is not shared. The run itself need not exist any more. */
export async function unshareTrace(
  { clickhouse, database }: Pick<SharedTraceDeps, 'clickhouse' | 'database'>,
  run: Pick<SharedRun, 'tenantId' | 'runId'>,
): Promise<void> {
  const located = await locateRun(clickhouse, run.tenantId, run.runId);
  await deleteShares(database, identifyTrace(run, run.runId), [run.runId, located?.traceId ?? run.runId]);
}

async function findTrace({ clickhouse, database }: SharedTraceDeps, run: SharedRun): Promise<string> {
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

export interface SharedTrace {
  readonly organizationId: string;
  readonly tenantId: string;
  readonly traceId: string;
}

/**
 * Finds the trace that a token gives access to.
 *
 * @throws NOT_FOUND if there is none, or its workspace is deleted.
 */
export async function openShare(database: Database, token: string): Promise<SharedTrace> {
  const { targetId: traceId, ...share } = await openShareToken(database, 'trace', token);
  return { ...share, traceId };
}
