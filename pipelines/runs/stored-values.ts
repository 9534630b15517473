/**
 * Values of runs that are read as ClickHouse stores them. ClickHouse plans each expression of a SELECT for 1 to 4 ms, and
 * the expressions of costs for 10 ms, which is longer than it takes to read a page. So TypeScript computes what
 * {@link runColumns} computes in SQL for filters, threads and exports. Both have the same results
 * (`test/pipelines/runs/stored-values.test.ts`).
 */
import { RowBinaryReader } from '../../infra/clickhouse/row-binary.ts';
import { CallCosts } from '../costs/call-costs.ts';
import { startRoundingMicros } from '../ingest/run-event/times.ts';
import { type RunColumn, runColumns, type SqlColumn } from './run-columns.ts';

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
  ranked_started_at: readRankedInteger,
  ranked_ended_at: readRankedInteger,
  ranked_parent_run_id: readRankedUuid,
  ranked_reference_example_id: readRankedUuid,
  ranked_tags: readRankedText,
  ranked_inputs: readRankedText,
  ranked_outputs: readRankedText,
  ranked_error: readRankedText,
  ranked_events: readRankedText,
  ranked_extra: readRankedText,
  ranked_serialized: readRankedText,
  ranked_prompt_tokens: readRankedInteger,
  ranked_completion_tokens: readRankedInteger,
  ranked_total_tokens: readRankedInteger,
  ranked_prompt_cost: readRankedText,
  ranked_completion_cost: readRankedText,
  ranked_total_cost: readRankedText,
  ranked_usage_details: readRankedText,
  ranked_first_token_time: readRankedInteger,
  ranked_price: readPrice,
} as const satisfies Record<string, (row: RowBinaryReader) => unknown>;

type StoredColumn = keyof typeof readers;
type StoredRow = { readonly [Column in StoredColumn]: ReturnType<(typeof readers)[Column]> };

function readRankedInteger(row: RowBinaryReader): number | undefined {
  return readRanked(row, () => row.int64());
}

function readRankedUuid(row: RowBinaryReader): string | undefined {
  return readRanked(row, () => row.uuid());
}

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
  const readKinds = () => row.array(() => ({ name: row.text().toString('utf8'), perToken: row.int256() }));
  // Source and rank.
  row.uint8();
  row.int64();
  const modelId = row.nullable(() => row.uuid());
  const [prompt, completion] = [row.nullable(readDecimal), row.nullable(readDecimal)];
  return {
    modelId,
    prompt: { perToken: prompt, kinds: readKinds() },
    completion: { perToken: completion, kinds: readKinds() },
  };
}

export type RunValue = Buffer | string | number | undefined;

/** A value of a run: the stored columns that it needs, and how it is computed. */
interface StoredValue {
  readonly columns: readonly StoredColumn[];
  readonly compute: (row: StoredRow, getCosts: () => CallCosts) => RunValue;
}

type PlainColumn = { [C in StoredColumn]: StoredRow[C] extends RunValue ? C : never }[StoredColumn];

const createPlain = (column: PlainColumn): StoredValue => ({ columns: [column], compute: (row) => row[column] });

/** A value that only model calls have. The type is checked on read, because a patch may omit it. */
const createOfCall = (columns: readonly StoredColumn[], compute: StoredValue['compute']): StoredValue => ({
  columns: ['ranked_run_type', ...columns],
  compute: (row, getCosts) => (isModelCall(row) ? compute(row, getCosts) : undefined),
});
const createPlainOfCall = (column: PlainColumn) => createOfCall([column], (row) => row[column]);

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

function computeCosts(row: StoredRow): CallCosts {
  return new CallCosts({
    tokens: { prompt: row.ranked_prompt_tokens, completion: row.ranked_completion_tokens },
    price: row.ranked_price,
    details: row.ranked_usage_details,
  });
}

/** A cost that an event states, otherwise the one of the tokens. */
const createCost = (stated: PlainColumn, choose: (costs: CallCosts) => string | undefined) =>
  createOfCall([stated, ...costColumns], (row, getCosts) => row[stated] ?? choose(getCosts()));

/** The values that need no SQL. A value of another column is the result of its expression as text. */
const storedValues: {
  readonly [Column in SqlColumn]?: StoredValue;
} & { readonly [Column in Exclude<RunColumn, SqlColumn>]: StoredValue } = {
  projectId: createPlain('session_id'),
  keyTimeMicros: createPlain('start_time'),
  traceId: createPlain('trace_id'),
  id: createPlain('id'),
  traceTimeMicros: createPlain('ranked_trace_time'),
  receivedAtMicros: createPlain('first_received_at'),
  dottedOrder: createPlain('ranked_dotted_order'),
  name: createPlain('ranked_name'),
  runType: createPlain('ranked_run_type'),
  startedAtMicros: {
    columns: ['ranked_started_at', 'start_time'],
    compute: ({ ranked_started_at: stated, start_time: key }) =>
      stated !== undefined && Math.abs(stated - key) <= startRoundingMicros ? stated : key,
  },
  endedAtMicros: createPlain('ranked_ended_at'),
  failed: { columns: ['ranked_error'], compute: (row) => (row.ranked_error === undefined ? undefined : '1') },
  parentRunId: createPlain('ranked_parent_run_id'),
  referenceExampleId: createPlain('ranked_reference_example_id'),
  tags: createPlain('ranked_tags'),
  inputs: createPlain('ranked_inputs'),
  outputs: createPlain('ranked_outputs'),
  error: createPlain('ranked_error'),
  events: createPlain('ranked_events'),
  extra: createPlain('ranked_extra'),
  serialized: createPlain('ranked_serialized'),
  promptTokens: createPlainOfCall('ranked_prompt_tokens'),
  completionTokens: createPlainOfCall('ranked_completion_tokens'),
  totalTokens: createPlainOfCall('ranked_total_tokens'),
  promptCost: createCost('ranked_prompt_cost', (costs) => costs.getCost('prompt')),
  completionCost: createCost('ranked_completion_cost', (costs) => costs.getCost('completion')),
  totalCost: createCost('ranked_total_cost', (costs) => costs.getTotal()),
  usageDetails: createOfCall(costColumns, (_row, getCosts) => getCosts().getDetails()),
  priceModelId: createOfCall(['ranked_price'], (row) => row.ranked_price.modelId),
  firstTokenTimeMicros: createPlainOfCall('ranked_first_token_time'),
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
  const needsSql = (column: RunColumn): column is SqlColumn => storedValues[column] === undefined;
  const expressions = [...wanted].filter(needsSql);
  const casts = expressions.map((column) => `CAST(${runColumns[column]} AS Nullable(String))`);
  return {
    selectSql: [...stored, ...casts].join(', '),
    readRows(result) {
      const reader = new RowBinaryReader(result);
      const readText = () => reader.text();
      const rows: ((column: RunColumn) => RunValue)[] = [];
      while (!reader.isAtEnd) {
        const row = Object.fromEntries(stored.map((column) => [column, readers[column](reader)])) as StoredRow;
        const texts = new Map<RunColumn, Buffer | undefined>(
          expressions.map((column) => [column, reader.nullable(readText)]),
        );
        // Several values need the costs, and a value may be read several times.
        let costs: CallCosts | undefined;
        const getCosts = () => (costs ??= computeCosts(row));
        const compute = (column: RunColumn) => storedValues[column]?.compute(row, getCosts) ?? texts.get(column);
        // The stored columns of other values may not have been read.
        rows.push((column) => (wanted.has(column) ? compute(column) : undefined));
      }
      return rows;
    },
  };
}
