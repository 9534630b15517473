import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readDiskBytes } from '../../infra/clickhouse/server-queries.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runBytes } from '../runs/run-columns.ts';
import { parseTierNumber, type TraceTier } from './lifetimes.ts';

/** Disk space that the traces of one workspace and tier use. */
export interface DiskUse {
  readonly workspaceId: string;
  readonly workspace: string;
  readonly organization: string;
  readonly tier: TraceTier;
  /** Number of stored rows of runs; a run has several rows until ClickHouse merges them. */
  readonly runRows: number;
  /** Compressed size of runs, attachments and feedback. */
  readonly bytes: number;
}

/** Estimated uncompressed bytes of a row without its large columns. */
const rowOverheadBytes = { runs: 600, attachments: 100, feedback: 300 };

const weights = {
  runs: `${runBytes} + ${rowOverheadBytes.runs}`,
  attachments: `length(content) + ${rowOverheadBytes.attachments}`,
  feedback: `ifNull(length(comment), 0) + ifNull(length(value), 0) + ${rowOverheadBytes.feedback}`,
};

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
  const bytesOf = await readDiskBytes(clickhouse);
  const selects = Object.entries(weights).map(
    ([table, weight]) =>
      `SELECT tenant_id, trace_tier, '${table}' AS name, ${bytesOf.get(table) ?? 0} AS disk, count() AS stored,
         toFloat64(sum(${weight})) AS weight
       FROM ${table} GROUP BY tenant_id, trace_tier`,
  );
  const rows = await clickhouse.query<{ tenant_id: string; tier: number; run_rows: number; bytes: number }>({
    name: 'read-disk-use',
    sql: `SELECT tenant_id, trace_tier AS tier, sumIf(stored, name = 'runs') AS run_rows,
            toUInt64(sum(weight / total * disk)) AS bytes
          FROM (SELECT *, sum(weight) OVER (PARTITION BY name) AS total FROM (${selects.join(' UNION ALL ')})) AS parts
          GROUP BY tenant_id, tier ORDER BY bytes DESC`,
    timeoutMs: 600_000,
  });
  const names = await database.query<{ id: string; workspace: string; organization: string }>(
    `SELECT w.id, w.display_name AS workspace, o.display_name AS organization
     FROM workspaces AS w JOIN organizations AS o ON o.id = w.organization_id`,
  );
  const byId = new Map(names.map(({ id, ...name }) => [id, name]));
  return rows.map(({ tenant_id: workspaceId, tier, run_rows: runRows, bytes }) => ({
    workspaceId,
    ...(byId.get(workspaceId) ?? { workspace: '', organization: '' }),
    tier: parseTierNumber(tier),
    runRows,
    bytes,
  }));
}
