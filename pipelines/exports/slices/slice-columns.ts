import type { ColumnForm } from '../../../infra/duckdb/encode-request.ts';
import type { ExportField } from '../../../schemas/parquet/run-columns.ts';
import type { Unplaced } from '../../runs/dotted-orders.ts';
import { type RunColumn, runColumns } from '../../runs/run-columns.ts';
import { runTypeUnknown } from '../../runs/run-filter.ts';
import type { ExportFormat } from '../export-scope.ts';

/** How a field comes from a run's merged row. */
export interface SliceColumn {
  /** Over `runs FINAL`; undefined where nothing fills the field. It is what `pipelines/runs/run-fields.ts` answers. */
  readonly sql: string | undefined;
  /** What the text or number stands for; its form in the file also depends on the format version. */
  readonly kind: 'text' | 'integer' | 'boolean' | 'micros' | 'json-text' | 'list';
  /** What is read beside the row where the row does not say it. */
  readonly beside?: 'place' | 'feedback' | 'figures';
}

const of = (column: RunColumn, absent?: string) =>
  absent === undefined ? runColumns[column] : `coalesce(${runColumns[column]}, ${absent})`;
const text = (column: RunColumn, absent?: string): SliceColumn => ({ sql: of(column, absent), kind: 'text' });
const count = (column: RunColumn): SliceColumn => ({ sql: of(column, '0'), kind: 'integer', beside: 'figures' });
const cost = (column: RunColumn): SliceColumn => ({ sql: of(column), kind: 'text', beside: 'figures' });
const moment = (column: RunColumn): SliceColumn => ({ sql: of(column), kind: 'micros' });

/** The ids in dotted_order, less the run's own, with what joins them. */
const ancestors = `arrayMap(segment -> right(segment, 36), arrayPopBack(splitByChar('.', ifNull(${runColumns.dottedOrder}, ''))))`;
const parentOf = runColumns.parentRunId;

export const sliceColumns: Readonly<Record<ExportField, SliceColumn>> = {
  id: text('id'),
  tenant_id: { sql: 'tenant_id', kind: 'text' },
  session_id: text('projectId'),
  trace_id: text('traceId'),
  parent_run_id: {
    sql: `coalesce(toString(${parentOf}), nullIf(arrayElement(${ancestors}, -1), ''))`,
    kind: 'text',
    beside: 'place',
  },
  parent_run_ids: {
    // Ids need no escaping.
    sql: `if(empty(${ancestors}), '[]', concat('["', arrayStringConcat(${ancestors}, '","'), '"]'))`,
    kind: 'list',
    beside: 'place',
  },
  reference_example_id: text('referenceExampleId'),
  name: text('name', "''"),
  run_type: text('runType', `'${runTypeUnknown}'`),
  start_time: moment('startedAtMicros'),
  end_time: moment('endedAtMicros'),
  status: {
    sql: `multiIf(isNotNull(${runColumns.failed}), 'error', isNull(${runColumns.endedAtMicros}), 'pending', 'success')`,
    kind: 'text',
  },
  is_root: { sql: `(id = trace_id OR isNull(${parentOf}))`, kind: 'boolean' },
  dotted_order: { sql: of('dottedOrder'), kind: 'text', beside: 'place' },
  trace_tier: { sql: undefined, kind: 'text' },
  inputs: text('inputs', "'{}'"),
  outputs: text('outputs'),
  error: { sql: of('error'), kind: 'json-text' },
  extra: text('extra'),
  events: text('events'),
  tags: { sql: of('tags'), kind: 'list' },
  feedback_stats: { sql: undefined, kind: 'text', beside: 'feedback' },
  total_tokens: count('totalTokens'),
  prompt_tokens: count('promptTokens'),
  completion_tokens: count('completionTokens'),
  total_cost: cost('totalCost'),
  prompt_cost: cost('promptCost'),
  completion_cost: cost('completionCost'),
  first_token_time: moment('firstTokenTimeMicros'),
};

/** Type of the source in ClickHouse's words. All may be null. */
const sourceTypes = {
  text: 'Nullable(String)',
  integer: 'Nullable(Int64)',
  boolean: 'Nullable(Bool)',
  micros: 'Nullable(Int64)',
  'json-text': 'Nullable(String)',
  list: 'Nullable(String)',
} as const satisfies Record<SliceColumn['kind'], string>;

/** Columns of a slice's file beyond the fields, for what is read beside the rows. */
export const idColumn = 'beside_id';
/** Of a run that came without dotted_order: what its place is put together from, see {@link readUnplaced}. Else null. */
export const unplacedColumn = 'beside_unplaced';

const unplaced = [
  runColumns.id,
  runColumns.traceId,
  `ifNull(toString(${parentOf}), '')`,
  runColumns.keyTimeMicros,
  runColumns.traceTimeMicros,
].map((part) => `toString(${part})`);

/** The run that a value of {@link unplacedColumn} tells of. */
export function readUnplaced(value: string): Unplaced {
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

/** The select list of a slice: each field that has a source, and what goes with it. */
export function selectOf(fields: readonly ExportField[]): string {
  const besides = besidesOf(fields);
  const list = fields.flatMap((field) => {
    const { sql, kind } = sliceColumns[field];
    return sql === undefined ? [] : [`CAST(${sql} AS ${sourceTypes[kind]}) AS ${sourceName(field)}`];
  });
  if (besides.size > 0) list.push(`toString(id) AS ${idColumn}`);
  if (besides.has('place')) {
    list.push(`if(isNull(${runColumns.dottedOrder}), concat(${unplaced.join(", ' ', ")}), NULL) AS ${unplacedColumn}`);
  }
  // ClickHouse does not write a file without columns.
  return list.length === 0 ? '1 AS beside_nothing' : list.join(', ');
}

export function besidesOf(fields: readonly ExportField[]): ReadonlySet<NonNullable<SliceColumn['beside']>> {
  return new Set(fields.flatMap((field) => sliceColumns[field].beside ?? []));
}

/** Column of the slice's file, and of the file beside it, that holds the field. */
export const sourceName = (field: ExportField) => `field_${field}`;

/** What the field's source becomes in a file of that version. */
export function formOf(field: ExportField, version: ExportFormat['version']): ColumnForm {
  const { kind } = sliceColumns[field];
  if (kind === 'list') return version === 'v1' ? 'text' : 'json-list';
  if (kind === 'micros') return version === 'v1' ? 'time' : 'zoned-time';
  return kind;
}
