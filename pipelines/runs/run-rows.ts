import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { modelCallColumns, type RunColumn, type RunKey } from './run-columns.ts';
import { buildKeysCondition } from './run-scope.ts';
import { planReading, type RunValue } from './stored-values.ts';

/** A run to read. */
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
 * deleted or have expired since step 1 are omitted. If some are not model calls, the columns of model calls are read by
 * another query at the same time, or by none.
 *
 * @throws errors of ClickHouse.
 */
export async function readRunRows(
  clickhouse: ClickHouse,
  tenantId: string,
  keys: readonly RunToRead[],
  wanted: ReadonlySet<RunColumn>,
): Promise<TracedRunRow[]> {
  const ofAllRuns = [...wanted].filter((column) => !modelCallColumns.has(column));
  const ofModelCalls = [...wanted].filter((column) => modelCallColumns.has(column));
  const modelCalls = keys.filter(({ isModelCall }) => isModelCall !== false);
  if (modelCalls.length === keys.length || ofModelCalls.length === 0) {
    const rows = await readColumns(clickhouse, tenantId, keys, [...wanted]);
    return keys.flatMap((key) => rows.get(buildRunIdentity(key)) ?? []);
  }
  const [rows, calls] = await Promise.all([
    readColumns(clickhouse, tenantId, keys, ofAllRuns),
    readColumns(clickhouse, tenantId, modelCalls, ofModelCalls),
  ]);
  return keys.flatMap((key) => {
    const [row, call] = [rows.get(buildRunIdentity(key)), calls.get(buildRunIdentity(key))];
    if (row === undefined) return [];
    return call === undefined ? row : joinRows(row, call, ofModelCalls);
  });
}

/** Joins a row with the row of the same run that has `columns`. */
function joinRows(row: TracedRunRow, other: TracedRunRow, columns: readonly RunColumn[]): TracedRunRow {
  const choose = (column: RunColumn) => (columns.includes(column) ? other : row);
  return {
    key: row.key,
    bytes: (column) => choose(column).bytes(column),
    text: (column) => choose(column).text(column),
    number: (column) => choose(column).number(column),
  };
}

/** Reads columns of runs, by the identity of the run. */
async function readColumns(
  clickhouse: ClickHouse,
  tenantId: string,
  keys: readonly RunKey[],
  wanted: readonly RunColumn[],
): Promise<Map<string, TracedRunRow>> {
  const rows = new Map<string, TracedRunRow>();
  if (keys.length === 0) return rows;
  const { selectSql, readRows } = planReading(new Set<RunColumn>([...keyColumns, ...wanted]));
  const { sql, ...binding } = buildKeysCondition(tenantId, keys);
  const response = await clickhouse.queryText({
    ...binding,
    name: 'read-runs',
    shardTables: ['runs'],
    settings: lookupSettings,
    sql: `SELECT ${selectSql} FROM {stored_runs:Identifier} FINAL PREWHERE ${sql} WHERE ${liveCondition}`,
    format: 'RowBinary',
  });
  for (const read of readRows(response)) {
    const row = toRunRow(read);
    rows.set(buildRunIdentity(row.key), row);
  }
  return rows;
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
