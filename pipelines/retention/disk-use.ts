import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readDiskBytes } from '../../infra/clickhouse/server-queries.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runBytes } from '../runs/run-columns.ts';
import { parseTierNumber, type TraceTier } from './lifetimes.ts';

/** Disk space that the data of one workspace and tier use. */
export interface DiskUse {
  readonly workspaceId: string;
  readonly workspace: string;
  readonly organization: string;
  /** Undefined for data without a tier: usage, facts for statistics, streamed events, versions of recent events. */
  readonly tier: TraceTier | undefined;
  /** Number of stored rows of runs; a run has several rows until ClickHouse merges them. */
  readonly runRows: number;
  /** Compressed size in ClickHouse. */
  readonly bytes: number;
}

interface TenantTable {
  /** SQL: estimated uncompressed bytes of a row. */
  readonly weight: string;
  readonly hasTier: boolean;
  /** Column with the owner of a row. Default: `tenant_id`. */
  readonly owner?: string;
}

/** Every table that holds data of workspaces. A test fails if one is missing. */
const tenantTables: Readonly<Record<string, TenantTable>> = {
  runs: { weight: `${runBytes} + 600`, hasTier: true },
  attachments: { weight: 'length(content) + 100', hasTier: true },
  feedback: { weight: 'ifNull(length(comment), 0) + ifNull(length(value), 0) + 300', hasTier: true },
  run_locator: { weight: '1', hasTier: true },
  trace_locations: { weight: '1', hasTier: true },
  trace_marks: { weight: '1', hasTier: true },
  traces: { weight: '1', hasTier: false },
  event_versions: { weight: '1', hasTier: false },
  usage_hourly: { weight: '24 * length(ids) + 50', hasTier: false },
  usage_daily: { weight: '24 * length(ids) + 50', hasTier: false },
  run_facts: { weight: '80 * length(runs.id) + 100 * length(traces.id) + 150 * length(calls.id) + 50', hasTier: false },
  // The owner is a deployment of the agent server.
  stream_events: { weight: 'data_bytes + 150', hasTier: false, owner: 'organization_id' },
};

interface UseRow {
  readonly owner: string;
  /** 0 if the rows have no tier. */
  readonly tier: number;
  readonly run_rows: number;
  readonly bytes: number;
}

/**
 * Returns disk use by workspace and tier, largest first. Each workspace is assigned the share of the disk space of a
 * table that corresponds to its share of the uncompressed size. Reads the sizes of all rows.
 *
 * @throws errors of the stores.
 */
export async function readDiskUse({
  clickhouse,
  database,
}: {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}): Promise<DiskUse[]> {
  const bytesByTable = await readDiskBytes(clickhouse);
  const selects = Object.entries(tenantTables).map(
    ([table, { weight, hasTier, owner = 'tenant_id' }]) =>
      `SELECT ${owner} AS owner, ${hasTier ? 'trace_tier' : 'toUInt8(0)'} AS tier, '${table}' AS name,
         ${bytesByTable.get(table) ?? 0} AS disk, count() AS stored, toFloat64(sum(${weight})) AS weight
       FROM ${table} GROUP BY owner, tier`,
  );
  const rows = await clickhouse.query<UseRow>({
    name: 'read-disk-use',
    sql: `SELECT owner, tier, sumIf(stored, name = 'runs') AS run_rows, toUInt64(sum(weight / total * disk)) AS bytes
          FROM (SELECT *, sum(weight) OVER (PARTITION BY name) AS total FROM (${selects.join(' UNION ALL ')})) AS parts
          GROUP BY owner, tier`,
    timeoutMs: 600_000,
  });
  const deployments = await database.query<{ id: string; workspace: string }>(
    'SELECT deployment_id AS id, workspace_id AS workspace FROM agents.deployments',
  );
  const workspaceByDeployment = new Map(deployments.map(({ id, workspace }) => [id, workspace]));
  const names = await database.query<{ id: string; workspace: string; organization: string }>(
    `SELECT w.id, w.display_name AS workspace, o.display_name AS organization
     FROM workspaces AS w JOIN organizations AS o ON o.id = w.organization_id`,
  );
  const byId = new Map(names.map(({ id, ...name }) => [id, name]));
  const uses = new Map<string, DiskUse>();
  for (const { owner, tier, run_rows: runRows, bytes } of rows) {
    const workspaceId = workspaceByDeployment.get(owner) ?? owner;
    const key = `${workspaceId} ${tier}`;
    const other = uses.get(key);
    uses.set(key, {
      workspaceId,
      ...(byId.get(workspaceId) ?? { workspace: '', organization: '' }),
      tier: tier === 0 ? undefined : parseTierNumber(tier),
      runRows: runRows + (other?.runRows ?? 0),
      bytes: bytes + (other?.bytes ?? 0),
    });
  }
  return [...uses.values()].sort((one, other) => other.bytes - one.bytes);
}
