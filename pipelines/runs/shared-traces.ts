/**
 * Traces that are shared by a token. A client that has the token can read the runs of the trace without a key, and
 * change nothing. The server creates a random token; it is valid until its row is deleted.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { createSealer, type Sealer } from '../../infra/sealing/sealer.ts';
import { locateRun, readLiveProjectIds } from './locate-run.ts';

export function createShareSealer({ formerSecretKeys }: Pick<Config, 'formerSecretKeys'>, secretKey: string): Sealer {
  return createSealer({
    secretKey,
    formerSecretKeys: formerSecretKeys?.split(',').flatMap((key) => key.trim() || []),
    purpose: 'shared traces',
    what: 'The token of the shared trace',
  });
}

export interface ShareDeps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly shareSealer: Sealer;
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

interface ShareRow {
  readonly trace_id: string;
  readonly sealed: string;
}

const hashToken = (token: string) => createHash('sha256').update(token.toLowerCase()).digest();
const identifyRow = (tenantId: string, traceId: string) => `${tenantId} ${traceId}`;

/**
 * Shares the trace of a run, and returns its token; the existing token if the trace is already shared.
 *
 * @throws NOT_FOUND if there is no such run; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function shareTrace(deps: ShareDeps, run: SharedRun, userId: string): Promise<string> {
  const traceId = await findTrace(deps, run);
  const token = randomUUID();
  const sealed = deps.shareSealer.seal(token, identifyRow(run.tenantId, traceId));
  await deps.database.execute(
    `INSERT INTO shared_traces (workspace_id, trace_id, token_hash, sealed_token, shared_by) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (workspace_id, trace_id) DO NOTHING`,
    [run.tenantId, traceId, hashToken(token), sealed, userId],
  );
  const shared = await readShare(deps, run.tenantId, traceId);
  if (shared === undefined) throw runlakeError('CONFLICT', { reason: 'The share was just deleted.' });
  return shared;
}

/**
 * Returns the token of the trace of a run; undefined if the trace is not shared.
 *
 * @throws NOT_FOUND if there is no such run; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the stores.
 */
export async function readShareOfRun(deps: ShareDeps, run: SharedRun): Promise<string | undefined> {
  return readShare(deps, run.tenantId, await findTrace(deps, run));
}

async function readShare({ database, shareSealer }: ShareDeps, tenantId: string, traceId: string) {
  const [row] = await readRows(database, tenantId, [traceId]);
  return row && shareSealer.open(row.sealed, identifyRow(tenantId, traceId)).text;
}

/** Ends the sharing of the trace of a run; does nothing if it is not shared. The run itself need not exist any more. */
export async function unshareTrace(
  { clickhouse, database }: Pick<ShareDeps, 'clickhouse' | 'database'>,
  { tenantId, runId }: Pick<SharedRun, 'tenantId' | 'runId'>,
): Promise<void> {
  const located = await locateRun(clickhouse, tenantId, runId);
  await database.execute('DELETE FROM shared_traces WHERE workspace_id = $1 AND trace_id = ANY ($2::uuid[])', [
    tenantId,
    [runId, located?.traceId ?? runId],
  ]);
}

/** Tokens of those traces that are shared, by trace. Tokens that no configured key decrypts are left out. */
export async function readShares(
  { database, shareSealer }: Pick<ShareDeps, 'database' | 'shareSealer'>,
  tenantId: string,
  traceIds: readonly string[],
): Promise<Map<string, string>> {
  const rows = await readRows(database, tenantId, traceIds);
  return new Map(
    rows.flatMap(({ trace_id, sealed }) => {
      try {
        return [[trace_id, shareSealer.open(sealed, identifyRow(tenantId, trace_id)).text]];
      } catch (error) {
        if (isRunlakeError(error)) return [];
        throw error;
      }
    }),
  );
}

function readRows(database: Database, tenantId: string, traceIds: readonly string[]): Promise<ShareRow[]> {
  return database.query<ShareRow>(
    `SELECT trace_id, sealed_token AS sealed FROM shared_traces
     WHERE workspace_id = $1 AND trace_id = ANY ($2::uuid[])`,
    [tenantId, traceIds],
    { name: 'shared-traces' },
  );
}

async function findTrace({ clickhouse, database }: ShareDeps, run: SharedRun): Promise<string> {
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
  const [found] = await database.query<SharedTrace>(
    `SELECT w.organization_id AS "organizationId", w.id AS "tenantId", s.trace_id AS "traceId"
     FROM shared_traces s JOIN workspaces w ON w.id = s.workspace_id
     WHERE s.token_hash = $1 AND w.deleted_at IS NULL`,
    [hashToken(token)],
    { name: 'open-share' },
  );
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Shared trace' });
  return found;
}
