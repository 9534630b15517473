/**
 * Gives attachments and feedback the lifetime of their run, if they were stored with another one.
 *
 * Invariant: attachments and feedback expire with their run or up to a week later, from the time when both are stored and
 * every request is handled.
 *
 *   1. The sink stores an event with the lifetime of its run, if that is stored, and reads it again after the insert
 *      (`expire-with-runs.ts`). If it differs or is still unknown, the sink requests 2, which waits for the run.
 *   2. For the runs of these requests, the job compares rows and runs (`keep-traces.ts`).
 *   3. A sink that has moved a trace does the same for its runs (`settle-traces.ts`). If it changes the lifetime of a run
 *      after 1 has read it again, it finds the row here. Otherwise the sink of the row finds the change.
 *   4. Keeping a trace copies the rows as it copies the runs.
 */
import type { ClickHouse, ExternalTable } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';
import { runOnEachShard } from '../../infra/clickhouse/layout.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { groupBy } from '../../infra/collections/group-by.ts';
import { type Lifetime, parseTierNumber, traceTiers } from './lifetimes.ts';

/** A run of a workspace. */
export interface TenantRun {
  readonly tenantId: string;
  readonly runId: string;
}

/** Returns the key of a run in maps. */
export const buildRunKey = ({ tenantId, runId }: TenantRun) => `${tenantId} ${runId}`;

const toKeys = (runs: readonly TenantRun[]): ExternalTable => ({
  name: 'keys',
  structure: 'tenant_id UUID, run_id UUID',
  rows: runs.map(({ tenantId, runId }) => [tenantId, runId]),
});

/** Reads the lifetimes of runs, by {@link buildRunKey}. Runs that are not stored are omitted. */
export async function readRunLifetimes(
  clickhouse: ClickHouse,
  runs: readonly TenantRun[],
): Promise<ReadonlyMap<string, Lifetime>> {
  if (runs.length === 0) return new Map();
  const rows = await clickhouse.query<{ tenant_id: string; id: string; tier: number; expires: number }>({
    name: 'read-run-lifetimes',
    settings: lookupSettings,
    sql: `SELECT tenant_id, id, max(trace_tier) AS tier, toUnixTimestamp(max(expires_at)) AS expires
          FROM run_locator WHERE (tenant_id, id) IN keys GROUP BY tenant_id, id`,
    externalTable: toKeys(runs),
  });
  return new Map(
    rows.map(({ tenant_id: tenantId, id: runId, tier, expires }) => [
      buildRunKey({ tenantId, runId }),
      { tier: parseTierNumber(tier), expiresAtSeconds: expires },
    ]),
  );
}

/** Tables with rows that expire with a run, each with the column that identifies a row of a run. */
const tables = { attachments: 'name', feedback: 'id' } as const;
type Table = keyof typeof tables;

/**
 * A row may outlive its run by a week. Rows of `attachments` whose expiry differs by more are in different partitions,
 * and ClickHouse never merges them.
 */
const maxLateSeconds = 7 * 86_400;
/** Maximum number of rows per statement, because ClickHouse limits the size of a parameter. */
const maxRowsPerStatement = 2_000;
const statementTimeoutMs = 3_600_000;

interface StoredRow extends TenantRun {
  /** Hash of run, name or id, and version, which copies of a row have in common. */
  readonly key: string;
  /** Hash of these and the expiry. */
  readonly copyKey: string;
  readonly expires: number;
}

/** A row with the lifetime of its run. */
interface MisalignedRow extends StoredRow {
  readonly lifetime: Lifetime;
}

const buildKeySql = (table: Table) => `cityHash64(tenant_id, run_id, ${tables[table]}, version)`;
const buildCopyKeySql = (table: Table) => `cityHash64(tenant_id, run_id, ${tables[table]}, version, expires_at)`;

/**
 * Aligns attachments and feedback of runs. Runs that are not stored are skipped. May be repeated.
 *
 * @throws errors of ClickHouse.
 */
export async function alignWithRuns(
  clickhouse: ClickHouse,
  runs: readonly TenantRun[],
  signal?: AbortSignal,
): Promise<void> {
  if (runs.length === 0) return;
  for (const table of Object.keys(tables) as Table[]) {
    const rows = await readRows(clickhouse, table, runs);
    if (rows.length === 0) continue;
    // Read the lifetimes after the rows: a row that was kept never seems to outlive its run.
    const lifetimes = await readRunLifetimes(clickhouse, rows);
    const isEarly = ({ expires }: StoredRow, { expiresAtSeconds }: Lifetime) => expires < expiresAtSeconds;
    const isLate = ({ expires }: StoredRow, { expiresAtSeconds }: Lifetime) =>
      expires > expiresAtSeconds + maxLateSeconds;
    const early: MisalignedRow[] = [];
    const late: MisalignedRow[] = [];
    for (const copies of groupBy(rows, ({ key }) => key).values()) {
      const first = copies[0] as StoredRow;
      const lifetime = lifetimes.get(buildRunKey(first));
      if (lifetime === undefined) continue;
      const lateCopies = copies.filter((row) => isLate(row, lifetime));
      late.push(...lateCopies.map((row) => ({ ...row, lifetime })));
      const hasAligned = copies.some((row) => !isEarly(row, lifetime) && !isLate(row, lifetime));
      // Feedback that outlives its run is changed in place.
      if (!hasAligned && (table === 'attachments' || lateCopies.length === 0)) early.push({ ...first, lifetime });
    }
    await copyRows(clickhouse, table, early, signal);
    for (const ofTenant of groupBy(late, ({ tenantId }) => tenantId).values()) {
      for (let at = 0; at < ofTenant.length; at += maxRowsPerStatement) {
        await shortenRows(clickhouse, table, ofTenant.slice(at, at + maxRowsPerStatement), signal);
      }
    }
  }
}

async function readRows(clickhouse: ClickHouse, table: Table, runs: readonly TenantRun[]): Promise<StoredRow[]> {
  return clickhouse.query<StoredRow>({
    name: `read-lifetimes-of-${table}`,
    settings: lookupSettings,
    sql: `SELECT tenant_id AS tenantId, run_id AS runId, toString(${buildKeySql(table)}) AS key,
            toString(${buildCopyKeySql(table)}) AS copyKey, toUnixTimestamp(expires_at) AS expires
          FROM ${table} WHERE (tenant_id, run_id) IN keys`,
    externalTable: toKeys(runs),
  });
}

/** Inserts a copy of each row with the lifetime of its run. */
async function copyRows(
  clickhouse: ClickHouse,
  table: Table,
  rows: readonly MisalignedRow[],
  signal: AbortSignal | undefined,
): Promise<void> {
  if (rows.length === 0) return;
  await clickhouse.command({
    name: `align-${table}`,
    sql: `INSERT INTO ${table}
      SELECT stored.* REPLACE (aligned.tier AS trace_tier, toDateTime(aligned.expiry) AS expires_at)
      FROM (
        SELECT * FROM ${table} WHERE (tenant_id, run_id) IN (SELECT tenant_id, run_id FROM aligned)
          AND ${buildCopyKeySql(table)} IN (SELECT copy_key FROM aligned)
      ) AS stored
      INNER JOIN (SELECT DISTINCT tenant_id, run_id, tier, expiry FROM aligned) AS aligned
        ON stored.tenant_id = aligned.tenant_id AND stored.run_id = aligned.run_id`,
    externalTable: {
      name: 'aligned',
      structure: 'tenant_id UUID, run_id UUID, copy_key UInt64, tier UInt8, expiry UInt32',
      rows: rows.map(({ tenantId, runId, copyKey, lifetime }) => [
        ...[tenantId, runId, copyKey, traceTiers[lifetime.tier], lifetime.expiresAtSeconds],
      ]),
    },
    profile: 'bulk',
    timeoutMs: statementTimeoutMs,
    ...(signal && { signal }),
  });
}

/**
 * Ends rows of a workspace with their runs. An attachment has a copy in another partition, so this deletes the row.
 * Feedback might have been merged with its copy, so this changes the row.
 */
async function shortenRows(
  clickhouse: ClickHouse,
  table: Table,
  rows: readonly MisalignedRow[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const runs = new Map(rows.map(({ runId, lifetime }) => [runId, lifetime]));
  const lifetimes = [...runs.values()];
  const condition = `tenant_id = {tenant:UUID} AND run_id IN {runs:Array(UUID)} AND ${buildCopyKeySql(table)} IN {copies:Array(UInt64)}`;
  const statement = {
    name: `shorten-${table}`,
    params: {
      tenant: rows[0]!.tenantId,
      runs: [...runs.keys()],
      copies: rows.map(({ copyKey }) => BigInt(copyKey)),
    },
    timeoutMs: statementTimeoutMs,
    ...(signal && { signal }),
  };
  if (table === 'attachments') {
    await deleteRows(clickhouse, { ...statement, table, condition });
    return;
  }
  const ofRun = (values: string) => `arrayElement({${values}}, indexOf({runs:Array(UUID)}, run_id))`;
  await runOnEachShard(clickhouse, (stored) => ({
    ...statement,
    sql: `ALTER TABLE ${stored(table)} UPDATE trace_tier = ${ofRun('tiers:Array(UInt8)')},
            expires_at = toDateTime(${ofRun('expiries:Array(UInt32)')}) WHERE ${condition}`,
    params: {
      ...statement.params,
      tiers: lifetimes.map(({ tier }) => traceTiers[tier]),
      expiries: lifetimes.map(({ expiresAtSeconds }) => expiresAtSeconds),
    },
    profile: 'mutation',
  }));
}
