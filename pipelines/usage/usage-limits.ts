/**
 * Limits on the traces of a workspace in a month (UTC).
 *
 * Invariant: a workspace below its hard limit is never refused. A workspace above its hard limit is refused as soon as
 * the roll-up has counted its traces and the state that this process has cached is older than {@link cacheMs}.
 *
 *   1. Ingest asks {@link UsageLimits.check} before it reads a request; a multipart body of feedback only is accepted
 *      all the same. The state of the workspace is cached.
 *   2. The state is its limits, and if it has any, the traces of the month from `usage_daily`.
 *   3. A state of an earlier month has the limits, and no traces of the current month.
 *   4. If the state cannot be read in time, the last one applies. Without one, the request fails if Postgres does not
 *      respond, which it needs anyway, and is accepted if only ClickHouse does not.
 */
import { randomUUID } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { timedOut, withTimeout } from '../../infra/timeouts/with-timeout.ts';
import { recordAuditLog } from '../tenants/audit-logs.ts';

export const limitTypes = ['monthly_traces'] as const;

/** Times are ISO 8601 with microseconds. */
export interface UsageLimit {
  readonly id: string;
  readonly tenant_id: string;
  readonly limit_type: (typeof limitTypes)[number];
  readonly limit_value: number;
  readonly is_hard: boolean;
  readonly created_at: string;
  readonly updated_at: string;
}

const columns = 'id, workspace_id AS tenant_id, limit_type, limit_value, is_hard, created_at, updated_at';

export function listUsageLimits(database: Sql, workspaceIds: readonly string[]): Promise<UsageLimit[]> {
  return database.query<UsageLimit>(
    `SELECT ${columns} FROM usage_limits WHERE workspace_id = ANY ($1::uuid[])
     ORDER BY workspace_id, limit_type, is_hard DESC`,
    [workspaceIds],
    { name: 'usage-limits' },
  );
}

type NewLimit = Pick<UsageLimit, 'limit_type' | 'limit_value' | 'is_hard'>;

/** Sets the soft or the hard limit of a limit type. */
export async function setUsageLimit(database: Sql, workspaceId: string, limit: NewLimit): Promise<UsageLimit> {
  const [set] = await database.query<UsageLimit>(
    `INSERT INTO usage_limits (id, workspace_id, limit_type, limit_value, is_hard) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (workspace_id, limit_type, is_hard)
       DO UPDATE SET limit_value = excluded.limit_value, updated_at = now()
     RETURNING ${columns}`,
    [randomUUID(), workspaceId, limit.limit_type, limit.limit_value, limit.is_hard],
  );
  return set!;
}

/**
 * Changes the value of a limit, and its kind if `is_hard` is given.
 *
 * @throws NOT_FOUND; CONFLICT if the workspace has another limit of this kind.
 */
export async function changeUsageLimit(
  database: Database,
  workspaceId: string,
  { id, limit_value, is_hard }: Pick<UsageLimit, 'id' | 'limit_value'> & { readonly is_hard: boolean | null },
): Promise<UsageLimit> {
  return database
    .transaction(async (tx) => {
      const sql = `SELECT ${columns} FROM usage_limits WHERE workspace_id = $1 AND id = $2 FOR UPDATE`;
      const [former] = await tx.query<UsageLimit>(sql, [workspaceId, id]);
      if (!former) return fail();
      const isHard = is_hard ?? former.is_hard;
      // The trigger of the table only records changes of the value.
      if (isHard !== former.is_hard && limit_value === former.limit_value) {
        const target = { kind: 'usage_limit', id, name: former.limit_type };
        const details = { limit_value: `${limit_value}`, is_hard: `${isHard}`, changed: ['is_hard'] };
        await recordAuditLog(tx, { workspaceId, action: 'usage_limit.update', target, details });
      }
      const [changed] = await tx.query<UsageLimit>(
        `UPDATE usage_limits SET limit_value = $2, is_hard = $3, updated_at = now() WHERE id = $1 RETURNING ${columns}`,
        [id, limit_value, isHard],
      );
      return changed!;
    })
    .catch((error: unknown) => {
      if (getViolatedConstraint(error) === undefined) throw error;
      const reason = `The workspace already has a ${is_hard ? 'hard' : 'soft'} limit of this type.`;
      throw runlakeError('CONFLICT', { reason }, { cause: error });
    });
}

/** Deletes a limit. @throws NOT_FOUND */
export async function deleteUsageLimit(database: Sql, workspaceId: string, id: string): Promise<void> {
  const sql = 'DELETE FROM usage_limits WHERE workspace_id = $1 AND id = $2';
  if ((await database.execute(sql, [workspaceId, id])) === 0) fail();
}

function fail(): never {
  throw runlakeError('NOT_FOUND', { what: 'Usage limit' });
}

/**
 * Limits of a workspace, and its traces in the current month. Without limits, `used` is 0, because nothing was counted.
 */
export interface UsageState {
  readonly hard: number | undefined;
  readonly soft: number | undefined;
  readonly used: number;
  /** Month, for example `2026-01`. */
  readonly month: string;
}

/** Returns the limit if the number of traces of the workspace has reached it; otherwise returns undefined. */
export function findExceededLimit(state: UsageState, name: 'hard' | 'soft'): number | undefined {
  const limit = state[name];
  return limit !== undefined && state.used >= limit ? limit : undefined;
}

const cacheMs = 5_000;
const countTimeoutMs = 5_000;
/** Maximum time that a request waits for the state if an older state is known. */
const maxWaitMs = 500;
const maxWorkspaces = 50_000;

export interface UsageLimitDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly logger: Pick<Logger, 'warn'>;
}

export class UsageLimits {
  readonly #deps: UsageLimitDeps;
  readonly #now: () => number;
  readonly #states: PromiseCache<UsageState>;
  /** Last known state of each workspace, used if no current state can be read. */
  readonly #last = new LRUCache<string, UsageState>({ max: maxWorkspaces });

  /** @param now current time in milliseconds since 1970. Tests vary it, and `ttlMs`. */
  constructor(deps: UsageLimitDeps, { ttlMs = cacheMs, now = Date.now } = {}) {
    this.#deps = deps;
    this.#states = new PromiseCache({ max: maxWorkspaces, ttlMs });
    this.#now = now;
  }

  /**
   * Resolves with a warning if the soft limit of the workspace is exceeded.
   *
   * @throws USAGE_LIMIT_REACHED if the number of traces of the workspace has reached its hard limit; errors of Postgres
   *   if its limits were never read.
   */
  async check(workspaceId: string): Promise<string | undefined> {
    const found = await this.#findState(workspaceId);
    if (found === undefined) return undefined;
    const month = formatMonth(this.#now());
    const state = found.month === month ? found : { ...found, used: 0, month };
    const { used } = state;
    const limit = findExceededLimit(state, 'hard');
    if (limit !== undefined) throw runlakeError('USAGE_LIMIT_REACHED', { used, limit, month });
    const soft = findExceededLimit(state, 'soft');
    return soft === undefined ? undefined : `${used} traces in ${month} (UTC), soft limit ${soft}`;
  }

  /** Applies a change of the limits at once in this process; other processes apply it within seconds. */
  forget(workspaceId: string): void {
    this.#states.forget(workspaceId);
    this.#last.delete(workspaceId);
  }

  /**
   * Finds the state of a workspace. If the stores do not respond in time, returns the last known state, because the
   * next steps of the request need the stores, too.
   */
  async #findState(workspaceId: string): Promise<UsageState | undefined> {
    const reading = this.#states.get(workspaceId, () => this.#readState(workspaceId));
    const last = this.#last.get(workspaceId);
    if (last === undefined) return reading;
    const state = await withTimeout(reading, maxWaitMs);
    return state === timedOut ? last : state;
  }

  async #readState(workspaceId: string): Promise<UsageState> {
    try {
      const state = await readUsageState(this.#deps, workspaceId, this.#now());
      this.#warn(workspaceId, state);
      this.#last.set(workspaceId, state);
      return state;
    } catch (error) {
      this.#deps.logger.warn({ err: error, workspaceId }, 'usage limits cannot be read');
      const last = this.#last.get(workspaceId);
      if (last !== undefined) return last;
      // Without Postgres the request fails anyway; without ClickHouse, events may still be accepted into Kafka.
      if (isRunlakeError(error) && error.code === 'DATABASE_UNAVAILABLE') throw error;
      return { hard: undefined, soft: undefined, used: 0, month: '' };
    }
  }

  /** Logs a warning once when a limit is exceeded. */
  #warn(workspaceId: string, state: UsageState): void {
    const previous = this.#last.get(workspaceId);
    for (const name of ['soft', 'hard'] as const) {
      const limit = findExceededLimit(state, name);
      if (limit === undefined) continue;
      const wasExceeded = previous !== undefined && findExceededLimit(previous, name) !== undefined;
      if (wasExceeded && previous.month === state.month) continue;
      const { used, month } = state;
      this.#deps.logger.warn({ workspaceId, limit, used, month }, `${name} usage limit exceeded`);
    }
  }
}

/** Month of a time, in UTC, such as `2026-01`. */
const formatMonth = (timeMs: number) => new Date(timeMs).toISOString().slice(0, 7);

/** @throws errors of the stores. */
export async function readUsageState(
  { database, clickhouse }: Pick<UsageLimitDeps, 'database' | 'clickhouse'>,
  workspaceId: string,
  nowMs = Date.now(),
): Promise<UsageState> {
  const limits = await listUsageLimits(database, [workspaceId]);
  const month = formatMonth(nowMs);
  const find = (isHard: boolean) => limits.find(({ is_hard }) => is_hard === isHard)?.limit_value;
  const [hard, soft] = [find(true), find(false)];
  if (limits.length === 0) return { hard, soft, used: 0, month };
  const [counted] = await clickhouse.query<{ used: number }>({
    name: 'usage-of-month',
    sql: `SELECT sum(arraySum(traces)) AS used FROM {stored_usage_daily:Identifier} FINAL
          WHERE tenant_id = {workspace:UUID} AND dimension = 'workspace' AND day >= {first:Date} AND day < addMonths({first:Date}, 1)`,
    params: { workspace: workspaceId, first: `${month}-01` },
    shardTables: ['usage_daily'],
    shardOf: workspaceId,
    timeoutMs: countTimeoutMs,
  });
  return { hard, soft, used: counted?.used ?? 0, month };
}
