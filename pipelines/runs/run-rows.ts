import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { modelCallColumns, type RunColumn, type RunKey } from './run-columns.ts';
import { buildKeysCondition } from './run-scope.ts';
import { planReading, type RunValue } from './stored-values.ts';

export interface RunToRead extends RunKey {
  /** False if the run is not a model call; undefined if that is not known. */
  readonly isModelCall?: boolean | undefined;
}

/** Selected columns of one run. */
export interface TracedRunRow {
  readonly key: RunKey;
  /** Returns the value as text, stored texts byte for byte; undefined if the column is null. */
  bytes(column: RunColumn): Buffer | undefined;
  text(column: RunColumn): string | undefined;
  number(column: RunColumn): number | undefined;
}

const keyColumns = ['id', 'traceId', 'projectId', 'keyTimeMicros'] as const satisfies RunColumn[];

/**
 * Step 2 of reading a page: reads the requested columns of exactly these runs, in the order of `keys`. Runs that were
 * deleted or have expired since step 1 are omitted. If none is a model call, the columns of model calls are not read.
 *
 * @throws errors of ClickHouse.
 */
export async function readRunRows(
  clickhouse: ClickHouse,
  tenantId: string,
  keys: readonly RunToRead[],
  wanted: ReadonlySet<RunColumn>,
): Promise<TracedRunRow[]> {
  if (keys.length === 0) return [];
  const hasCalls = keys.some(({ isModelCall }) => isModelCall !== false);
  const columns = [...wanted].filter((column) => hasCalls || !modelCallColumns.has(column));
  const { selectSql, readRows } = planReading(new Set<RunColumn>([...keyColumns, ...columns]));
  const { sql, ...binding } = buildKeysCondition(tenantId, keys);
  const response = await clickhouse.queryText({
    ...binding,
    name: 'read-runs',
    shardTables: ['runs'],
    settings: lookupSettings,
    sql: `SELECT ${selectSql} FROM {stored_runs:Identifier} FINAL PREWHERE ${sql} WHERE ${liveCondition}`,
    format: 'RowBinary',
  });
  const rows = new Map(
    readRows(response)
      .map(toRunRow)
      .map((row) => [buildRunIdentity(row.key), row]),
  );
  return keys.flatMap((key) => rows.get(buildRunIdentity(key)) ?? []);
}

function toRunRow(read: (column: RunColumn) => RunValue): TracedRunRow {
  const bytes = (column: RunColumn) => {
    const value = read(column);
    return value === undefined || Buffer.isBuffer(value) ? value : Buffer.from(String(value));
  };
  const text = (column: RunColumn) => read(column)?.toString();
  const number = (column: RunColumn) => {
    const value = read(column);
    return value === undefined ? undefined : Number(value);
  };
  const key: RunKey = {
    runId: text('id') ?? '',
    traceId: text('traceId') ?? '',
    projectId: text('projectId') ?? '',
    startTimeMicros: number('keyTimeMicros') ?? 0,
  };
  return { key, bytes, text, number };
}

function buildRunIdentity({ projectId, startTimeMicros, traceId, runId }: RunKey): string {
  return `${runId}${traceId}${projectId}${startTimeMicros}`;
}
