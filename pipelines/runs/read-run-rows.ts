import { readNullableTextRows } from '../../infra/clickhouse/nullable-text-rows.ts';
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { type RunColumn, runColumns } from './run-columns.ts';
import type { RunKey } from './run-key.ts';
import { placeOfKeys } from './run-scope.ts';

/** Some columns of one run. */
export interface RunRow {
  readonly key: RunKey;
  /** The stored bytes; undefined where nothing is stored. */
  bytes(column: RunColumn): Buffer | undefined;
  text(column: RunColumn): string | undefined;
  number(column: RunColumn): number | undefined;
}

const keyColumns = ['id', 'traceId', 'projectId', 'keyTimeMicros'] as const satisfies RunColumn[];

/**
 * Step 2 of reading a page: the wanted columns of exactly these runs, in the order of `keys`. Runs that were deleted since are
 * left out.
 * @throws what the warehouse throws.
 */
export async function readRunRows(
  warehouse: Warehouse,
  tenantId: string,
  keys: readonly RunKey[],
  wanted: ReadonlySet<RunColumn>,
): Promise<RunRow[]> {
  if (keys.length === 0) return [];
  const columns = [...new Set<RunColumn>([...keyColumns, ...wanted])];
  const { sql, ...place } = placeOfKeys(tenantId, keys);
  const answer = await warehouse.queryText({
    ...place,
    name: 'read-runs',
    sql: `SELECT ${columns.map((column) => `CAST(${runColumns[column]} AS Nullable(String))`).join(', ')}
          FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at)`,
    format: 'RowBinary',
  });
  const places = new Map(columns.map((column, place) => [column, place]));
  const rows = new Map<string, RunRow>();
  for (const values of readNullableTextRows(answer, columns.length)) {
    const row = runRow(values, places);
    rows.set(identity(row.key), row);
  }
  return keys.flatMap((key) => rows.get(identity(key)) ?? []);
}

function runRow(values: readonly (Buffer | undefined)[], places: ReadonlyMap<RunColumn, number>): RunRow {
  const bytes = (column: RunColumn) => values[places.get(column) ?? -1];
  const text = (column: RunColumn) => bytes(column)?.toString('utf8');
  const number = (column: RunColumn) => {
    const digits = text(column);
    return digits === undefined ? undefined : Number(digits);
  };
  const key: RunKey = {
    runId: text('id') ?? '',
    traceId: text('traceId') ?? '',
    projectId: text('projectId') ?? '',
    startTimeMicros: number('keyTimeMicros') ?? 0,
  };
  return { key, bytes, text, number };
}

function identity({ projectId, startTimeMicros, traceId, runId }: RunKey): string {
  return `${runId}${traceId}${projectId}${startTimeMicros}`;
}
