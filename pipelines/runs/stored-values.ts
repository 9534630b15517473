/**
 * Values of runs that are read as ClickHouse stores them. ClickHouse plans each expression of a SELECT for 1 to 4 ms, and
 * the expressions of costs for 10 ms, which is longer than it takes to read a page. So TypeScript computes what
 * {@link runColumns} computes in SQL for filters, threads and exports. Both have the same results
 * (`test/pipelines/runs/stored-values.test.ts`).
 */
import { RowBinaryReader } from '../../infra/clickhouse/row-binary.ts';
import { addCostDetails, type CallUsage, computePartCost, computeTotalCost } from '../costs/call-costs.ts';
import { startRoundingMicros } from '../ingest/run-event/times.ts';
import { type RunColumn, runColumns } from './run-columns.ts';

/** Size of the rank before a text, in bytes. */
const rankBytes = 8;

/** Readers of stored columns. A ranked column is undefined if no event has set its value. */
const readers = {
  session_id: (row) => row.uuid(),
  start_time: (row) => row.int64(),
  trace_id: (row) => row.uuid(),
  id: (row) => row.uuid(),
  first_received_at: (row) => row.int64(),
  // Every row has a time of the trace, also with rank 0.
  ranked_trace_time: (row) => [row.int64(), row.int64()][1],
  ranked_dotted_order: readRankedText,
  ranked_name: readRankedText,
  ranked_run_type: readRankedText,
  ranked_started_at: (row) => readRanked(row, () => row.int64()),
  ranked_ended_at: (row) => readRanked(row, () => row.int64()),
  ranked_parent_run_id: (row) => readRanked(row, () => row.uuid()),
  ranked_reference_example_id: (row) => readRanked(row, () => row.uuid()),
  ranked_tags: readRankedText,
  ranked_inputs: readRankedText,
  ranked_outputs: readRankedText,
  ranked_error: readRankedText,
  ranked_events: readRankedText,
  ranked_extra: readRankedText,
  ranked_serialized: readRankedText,
  ranked_prompt_tokens: (row) => readRanked(row, () => row.int64()),
  ranked_completion_tokens: (row) => readRanked(row, () => row.int64()),
  ranked_total_tokens: (row) => readRanked(row, () => row.int64()),
  ranked_prompt_cost: readRankedText,
  ranked_completion_cost: readRankedText,
  ranked_total_cost: readRankedText,
  ranked_usage_details: readRankedText,
  ranked_first_token_time: (row) => readRanked(row, () => row.int64()),
  ranked_price: readPrice,
} as const satisfies Record<string, (row: RowBinaryReader) => unknown>;

type StoredColumn = keyof typeof readers;
type StoredRow = { readonly [Column in StoredColumn]: ReturnType<(typeof readers)[Column]> };

function readRanked<Value>(row: RowBinaryReader, read: () => Value): Value | undefined {
  const rank = row.int64();
  const value = read();
  return rank === 0 ? undefined : value;
}

function readRankedText(row: RowBinaryReader): Buffer | undefined {
  const text = row.text();
  return text.length === 0 ? undefined : text.subarray(rankBytes);
}

function readPrice(row: RowBinaryReader) {
  const readDecimal = () => row.int256();
  const readKinds = () => row.array(() => ({ name: row.text().toString('utf8'), token: row.int256() }));
  // Source and rank.
  row.uint8();
  row.int64();
  const modelId = row.nullable(() => row.uuid());
  const [prompt, completion] = [row.nullable(readDecimal), row.nullable(readDecimal)];
  return {
    modelId,
    prompt: { token: prompt, kinds: readKinds() },
    completion: { token: completion, kinds: readKinds() },
  };
}

export type RunValue = Buffer | string | number | undefined;

/** A value of a run: the stored columns that it needs, and how it is computed. */
interface StoredValue {
  readonly columns: readonly StoredColumn[];
  readonly compute: (row: StoredRow) => RunValue;
}

type PlainColumn = { [C in StoredColumn]: StoredRow[C] extends RunValue ? C : never }[StoredColumn];

const plain = (column: PlainColumn): StoredValue => ({ columns: [column], compute: (row) => row[column] });

/** A value that only model calls have. The type is checked on read, because a patch may omit it. */
const ofCalls = (columns: readonly StoredColumn[], compute: StoredValue['compute']): StoredValue => ({
  columns: ['ranked_run_type', ...columns],
  compute: (row) => (isModelCall(row) ? compute(row) : undefined),
});
const plainOfCalls = (column: PlainColumn) => ofCalls([column], (row) => row[column]);

function isModelCall({ ranked_run_type: type }: StoredRow): boolean {
  const text = type?.toString('latin1');
  return text === 'llm' || text === 'embedding';
}

const costColumns = [
  'ranked_prompt_tokens',
  'ranked_completion_tokens',
  'ranked_usage_details',
  'ranked_price',
] as const satisfies readonly StoredColumn[];

function toUsage(row: Pick<StoredRow, (typeof costColumns)[number]>): CallUsage {
  return {
    tokens: { prompt: row.ranked_prompt_tokens, completion: row.ranked_completion_tokens },
    price: row.ranked_price,
    details: row.ranked_usage_details,
  };
}

/** A cost that an event states, otherwise the one of the tokens. */
const cost = (stated: PlainColumn, compute: (usage: CallUsage) => string | undefined) =>
  ofCalls([stated, ...costColumns], (row) => row[stated] ?? compute(toUsage(row)));

/** The values that need no SQL. A value of another column is the result of its expression as text. */
const storedValues: { readonly [Column in RunColumn]?: StoredValue } = {
  projectId: plain('session_id'),
  keyTimeMicros: plain('start_time'),
  traceId: plain('trace_id'),
  id: plain('id'),
  traceTimeMicros: plain('ranked_trace_time'),
  receivedAtMicros: plain('first_received_at'),
  dottedOrder: plain('ranked_dotted_order'),
  name: plain('ranked_name'),
  runType: plain('ranked_run_type'),
  startedAtMicros: {
    columns: ['ranked_started_at', 'start_time'],
    compute: ({ ranked_started_at: stated, start_time: key }) =>
      stated !== undefined && Math.abs(stated - key) <= startRoundingMicros ? stated : key,
  },
  endedAtMicros: plain('ranked_ended_at'),
  failed: { columns: ['ranked_error'], compute: (row) => (row.ranked_error === undefined ? undefined : '1') },
  parentRunId: plain('ranked_parent_run_id'),
  referenceExampleId: plain('ranked_reference_example_id'),
  tags: plain('ranked_tags'),
  inputs: plain('ranked_inputs'),
  outputs: plain('ranked_outputs'),
  error: plain('ranked_error'),
  events: plain('ranked_events'),
  extra: plain('ranked_extra'),
  serialized: plain('ranked_serialized'),
  promptTokens: plainOfCalls('ranked_prompt_tokens'),
  completionTokens: plainOfCalls('ranked_completion_tokens'),
  totalTokens: plainOfCalls('ranked_total_tokens'),
  promptCost: cost('ranked_prompt_cost', (usage) => computePartCost(usage, 'prompt')),
  completionCost: cost('ranked_completion_cost', (usage) => computePartCost(usage, 'completion')),
  totalCost: cost('ranked_total_cost', computeTotalCost),
  usageDetails: ofCalls(costColumns, (row) => addCostDetails(toUsage(row))),
  priceModelId: ofCalls(['ranked_price'], (row) => row.ranked_price.modelId),
  firstTokenTimeMicros: plainOfCalls('ranked_first_token_time'),
};

/** How the values of some columns are read. */
export interface ValueReading {
  /** The list of a SELECT from `runs FINAL`. */
  readonly selectSql: string;
  /** Reads the rows of the result in the format RowBinary. Texts are views into `result`. */
  readRows(result: Buffer): ((column: RunColumn) => RunValue)[];
}

export function planReading(wanted: ReadonlySet<RunColumn>): ValueReading {
  const stored = [...new Set([...wanted].flatMap((column) => storedValues[column]?.columns ?? []))];
  const expressions = [...wanted].filter((column) => storedValues[column] === undefined);
  const casts = expressions.map((column) => `CAST(${runColumns[column]} AS Nullable(String))`);
  return {
    selectSql: [...stored, ...casts].join(', '),
    readRows(result) {
      const reader = new RowBinaryReader(result);
      const readText = () => reader.text();
      const rows: ((column: RunColumn) => RunValue)[] = [];
      while (!reader.isAtEnd) {
        const row = Object.fromEntries(stored.map((column) => [column, readers[column](reader)])) as StoredRow;
        const texts = new Map(expressions.map((column) => [column, reader.nullable(readText)]));
        rows.push((column) => (texts.has(column) ? texts.get(column) : storedValues[column]?.compute(row)));
      }
      return rows;
    },
  };
}
