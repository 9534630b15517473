import type { ColumnConversion } from '../../infra/duckdb/encode-sql.ts';
import type { ExportField } from '../../schemas/parquet/run-columns.ts';
import type { RunWithoutDottedOrder } from '../runs/dotted-orders.ts';
import { defaultRunType, runColumns, type SqlColumn } from '../runs/run-columns.ts';
import type { ExportFormat } from './record.ts';

/** Defines how an export field is derived from the merged row of a run. */
export interface ChunkColumn {
  /**
   * SQL expression over `runs FINAL`; undefined if the table has no value for the field. It yields the same value as
   * the field in `pipelines/runs/run-fields.ts`.
   */
  readonly sql: string | undefined;
  /** Type of the value. The representation in the file also depends on the format version. */
  readonly kind: 'text' | 'integer' | 'boolean' | 'micros' | 'json-text' | 'list';
  /** Kind of derived value that `derived-values.ts` adds if the row does not contain the value. */
  readonly derived?: 'ancestry' | 'feedback' | 'figures';
}

const buildColumnSql = (column: SqlColumn, absent?: string) =>
  absent === undefined ? runColumns[column] : `coalesce(${runColumns[column]}, ${absent})`;
const createTextColumn = (column: SqlColumn, absent?: string): ChunkColumn => ({
  sql: buildColumnSql(column, absent),
  kind: 'text',
});
const createCountColumn = (column: SqlColumn): ChunkColumn => ({
  sql: buildColumnSql(column, '0'),
  kind: 'integer',
  derived: 'figures',
});
const createCostColumn = (column: SqlColumn): ChunkColumn => ({
  sql: buildColumnSql(column),
  kind: 'text',
  derived: 'figures',
});
const createTimeColumn = (column: SqlColumn): ChunkColumn => ({ sql: buildColumnSql(column), kind: 'micros' });

/** SQL expression for the ids of the ancestors in the dotted_order. */
const ancestorsSql = `arrayMap(segment -> right(segment, 36), arrayPopBack(splitByChar('.', ifNull(${runColumns.dottedOrder}, ''))))`;
const parentIdSql = runColumns.parentRunId;

export const chunkColumns: Readonly<Record<ExportField, ChunkColumn>> = {
  id: createTextColumn('id'),
  tenant_id: { sql: 'tenant_id', kind: 'text' },
  session_id: createTextColumn('projectId'),
  trace_id: createTextColumn('traceId'),
  parent_run_id: {
    sql: `coalesce(toString(${parentIdSql}), nullIf(arrayElement(${ancestorsSql}, -1), ''))`,
    kind: 'text',
    derived: 'ancestry',
  },
  parent_run_ids: {
    // Ids need no JSON escaping.
    sql: `if(empty(${ancestorsSql}), '[]', concat('["', arrayStringConcat(${ancestorsSql}, '","'), '"]'))`,
    kind: 'list',
    derived: 'ancestry',
  },
  reference_example_id: createTextColumn('referenceExampleId'),
  name: createTextColumn('name', "''"),
  run_type: createTextColumn('runType', `'${defaultRunType}'`),
  start_time: createTimeColumn('startedAtMicros'),
  end_time: createTimeColumn('endedAtMicros'),
  status: {
    sql: `multiIf(isNotNull(${runColumns.failed}), 'error', isNull(${runColumns.endedAtMicros}), 'pending', 'success')`,
    kind: 'text',
  },
  is_root: { sql: `(id = trace_id OR isNull(${parentIdSql}))`, kind: 'boolean' },
  dotted_order: { sql: buildColumnSql('dottedOrder'), kind: 'text', derived: 'ancestry' },
  trace_tier: createTextColumn('traceTier'),
  inputs: createTextColumn('inputs', "'{}'"),
  outputs: createTextColumn('outputs'),
  error: { sql: buildColumnSql('error'), kind: 'json-text' },
  extra: createTextColumn('extra'),
  events: createTextColumn('events'),
  tags: { sql: buildColumnSql('tags'), kind: 'list' },
  feedback_stats: { sql: undefined, kind: 'text', derived: 'feedback' },
  total_tokens: createCountColumn('totalTokens'),
  prompt_tokens: createCountColumn('promptTokens'),
  completion_tokens: createCountColumn('completionTokens'),
  total_cost: createCostColumn('totalCost'),
  prompt_cost: createCostColumn('promptCost'),
  completion_cost: createCostColumn('completionCost'),
  first_token_time: createTimeColumn('firstTokenTimeMicros'),
};

/** ClickHouse types of the source columns. All of them are nullable. */
const sourceTypes = {
  text: 'Nullable(String)',
  integer: 'Nullable(Int64)',
  boolean: 'Nullable(Bool)',
  micros: 'Nullable(Int64)',
  'json-text': 'Nullable(String)',
  list: 'Nullable(String)',
} as const satisfies Record<ChunkColumn['kind'], string>;

/** Additional column in the file of a chunk: the id of the run. It is read by `derived-values.ts`. */
export const idColumn = 'beside_id';
/**
 * Additional column in the file of a chunk: the data from which to derive the dotted_order of a run that was sent
 * without one; null for all other runs. {@link parseRunWithoutDottedOrder} parses it.
 */
export const missingOrderColumn = 'beside_unplaced';

const missingOrderExpressions = [
  runColumns.id,
  runColumns.traceId,
  `ifNull(toString(${parentIdSql}), '')`,
  runColumns.keyTimeMicros,
  runColumns.traceTimeMicros,
].map((part) => `toString(${part})`);

/** Parses a value of the column {@link missingOrderColumn}. */
export function parseRunWithoutDottedOrder(value: string): RunWithoutDottedOrder {
  const [runId = '', traceId = '', parent, startTime, traceTime] = value.split(' ');
  return {
    runId,
    traceId,
    parentRunId: parent || undefined,
    startTimeMicros: Number(startTime),
    traceTimeMicros: Number(traceTime),
    dottedOrder: undefined,
  };
}

/**
 * Builds the select list for a chunk. It contains each field that has a source, and the columns for
 * `derived-values.ts`.
 */
export function buildSelectList(fields: readonly ExportField[]): string {
  const derivedKinds = listDerivedKinds(fields);
  const list = fields.flatMap((field) => {
    const { sql, kind } = chunkColumns[field];
    return sql === undefined ? [] : [`CAST(${sql} AS ${sourceTypes[kind]}) AS ${getSourceColumnName(field)}`];
  });
  if (derivedKinds.size > 0) list.push(`toString(id) AS ${idColumn}`);
  if (derivedKinds.has('ancestry')) {
    list.push(
      `if(isNull(${runColumns.dottedOrder}), concat(${missingOrderExpressions.join(", ' ', ")}), NULL) AS ${missingOrderColumn}`,
    );
  }
  // ClickHouse cannot write a file without columns.
  return list.length === 0 ? '1 AS beside_nothing' : list.join(', ');
}

export function listDerivedKinds(fields: readonly ExportField[]): ReadonlySet<NonNullable<ChunkColumn['derived']>> {
  return new Set(fields.flatMap((field) => chunkColumns[field].derived ?? []));
}

/** Returns the column name of a field in the chunk file and in the file of derived values. */
export const getSourceColumnName = (field: ExportField) => `field_${field}`;

/** Returns the conversion that a field needs in a file of this format version. */
export function getColumnType(field: ExportField, version: ExportFormat['version']): ColumnConversion {
  const { kind } = chunkColumns[field];
  if (kind === 'list') return version === 'v1' ? 'text' : 'json-list';
  if (kind === 'micros') return version === 'v1' ? 'time' : 'zoned-time';
  return kind;
}
