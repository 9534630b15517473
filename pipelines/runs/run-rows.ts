import type { ClickHouse, Query } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/nullable-text-rows.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { costExpressions } from '../costs/cost-sql.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { modelCallColumns, type RunColumn, type RunKey, runColumns } from './run-columns.ts';
import { buildKeysCondition } from './run-scope.ts';

/** A run to read. */
export interface RunToRead extends RunKey {
  /** False if the run is not a model call; undefined if that is not known. */
  readonly isModelCall?: boolean | undefined;
  /** The columns that not only model calls have, if they are read already. */
  readonly row?: TracedRunRow | undefined;
}

/** Selected columns of one run. */
export interface TracedRunRow {
  readonly key: RunKey;
  /** Returns the stored bytes; undefined if the column is null. */
  bytes(column: RunColumn): Buffer | undefined;
  text(column: RunColumn): string | undefined;
  number(column: RunColumn): number | undefined;
}

const keyColumns = ['id', 'traceId', 'projectId', 'keyTimeMicros'] as const satisfies RunColumn[];

export const isOfAllRuns = (column: RunColumn) => !modelCallColumns.has(column);

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
  const columns = [...wanted];
  const ofModelCalls = columns.filter((column) => !isOfAllRuns(column));
  const modelCalls = ofModelCalls.length === 0 ? [] : keys.filter(({ isModelCall }) => isModelCall !== false);
  const unread = keys.filter(({ row }) => row === undefined);
  const readsAllAtOnce = modelCalls.length === keys.length && unread.length === keys.length;
  const [rows, calls] = await Promise.all([
    readColumns(clickhouse, tenantId, unread, readsAllAtOnce ? columns : columns.filter(isOfAllRuns)),
    readColumns(clickhouse, tenantId, readsAllAtOnce ? [] : modelCalls, ofModelCalls),
  ]);
  return keys.flatMap((key) => {
    const identity = buildRunIdentity(key);
    const [row, call] = [key.row ?? rows.get(identity), calls.get(identity)];
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
  columns: readonly RunColumn[],
): Promise<Map<string, TracedRunRow>> {
  if (keys.length === 0) return new Map();
  const { sql, ...binding } = buildKeysCondition(tenantId, keys);
  const rows = await queryRunRows(clickhouse, columns, (list) => ({
    ...binding,
    name: 'read-runs',
    settings: lookupSettings,
    sql: `WITH ${costExpressions.join(', ')} SELECT ${list} FROM runs FINAL PREWHERE ${sql} WHERE ${liveCondition}`,
  }));
  return new Map(rows.map((row) => [buildRunIdentity(row.key), row]));
}

/**
 * Reads columns of runs, and always their keys.
 *
 * @param buildQuery Returns the query with the given list of SELECT.
 * @throws errors of ClickHouse.
 */
export async function queryRunRows(
  clickhouse: ClickHouse,
  wanted: readonly RunColumn[],
  buildQuery: (list: string) => Query,
): Promise<TracedRunRow[]> {
  const columns = [...new Set<RunColumn>([...keyColumns, ...wanted])];
  const list = columns.map((column) => `CAST(${runColumns[column]} AS Nullable(String))`).join(', ');
  const response = await clickhouse.queryText({ ...buildQuery(list), format: 'RowBinary' });
  const indexes = new Map(columns.map((column, index) => [column, index]));
  return readNullableTextRows(response, columns.length).map((values) => toRunRow(values, indexes));
}

function toRunRow(values: readonly (Buffer | undefined)[], indexes: ReadonlyMap<RunColumn, number>): TracedRunRow {
  const bytes = (column: RunColumn) => values[indexes.get(column) ?? -1];
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

function buildRunIdentity({ projectId, startTimeMicros, traceId, runId }: RunKey): string {
  return `${runId}${traceId}${projectId}${startTimeMicros}`;
}
