/** Types of the columns in DuckDB's words, which every Parquet reader has an equal of. */
export type RunColumnType = 'VARCHAR' | 'VARCHAR[]' | 'BIGINT' | 'BOOLEAN' | 'TIMESTAMP' | 'TIMESTAMP WITH TIME ZONE';

export type RunColumnGroup =
  | 'Identifiers and hierarchy'
  | 'Basic metadata'
  | 'Run data'
  | 'Tags and feedback'
  | 'Tokens and costs';

/** One column of exported runs. */
export interface RunParquetColumn {
  readonly name: string;
  readonly group: RunColumnGroup;
  /** Type in each format version. */
  readonly type: { readonly v1: RunColumnType; readonly v2_beta: RunColumnType };
  /** What one of a number, or the form of a text, stands for. */
  readonly unit: string;
  /** When it is null; absent where it never is. */
  readonly nullWhen?: string;
  /** As DuckDB shows it in v2_beta. */
  readonly example: string;
  readonly text: string;
}

const both = (type: RunColumnType) => ({ v1: type, v2_beta: type });
const varchar = both('VARCHAR');
const time = { v1: 'TIMESTAMP', v2_beta: 'TIMESTAMP WITH TIME ZONE' } as const;
const list = { v1: 'VARCHAR', v2_beta: 'VARCHAR[]' } as const;
const uuid = 'UUID, lower case';
const moment = 'UTC, microseconds';
const json = 'JSON';
const cost = 'decimal, up to 21 digits before and 20 behind the point';
const unsaid = 'nobody said one';

/**
 * Every column that an export can have, in the order of the files where no order is asked for. Values are those that
 * `POST /runs/query` answers for the field of the same name; `tenant_id` and `is_root` are of exports alone.
 * Source: SPEC 2.9. `docs/reference/export-columns.md` is generated from this table.
 */
export const runParquetColumns = [
  {
    name: 'id',
    group: 'Identifiers and hierarchy',
    type: varchar,
    unit: uuid,
    example: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'The run.',
  },
  {
    name: 'tenant_id',
    group: 'Identifiers and hierarchy',
    type: varchar,
    unit: uuid,
    example: '5f0c8e8e-2b9a-4c55-8b57-6d1f1f0a9c11',
    text: 'Its workspace.',
  },
  {
    name: 'session_id',
    group: 'Identifiers and hierarchy',
    type: varchar,
    unit: uuid,
    example: '9c1d7f0e-8a64-4f1b-a0d1-52b7c7f1c5d3',
    text: 'Its tracing project.',
  },
  {
    name: 'trace_id',
    group: 'Identifiers and hierarchy',
    type: varchar,
    unit: uuid,
    example: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'Its trace; mostly the id of the root run.',
  },
  {
    name: 'parent_run_id',
    group: 'Identifiers and hierarchy',
    type: varchar,
    unit: uuid,
    nullWhen: 'the run is a root',
    example: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'The run that called it.',
  },
  {
    name: 'parent_run_ids',
    group: 'Identifiers and hierarchy',
    type: list,
    unit: `list of ${uuid}; v1: JSON array`,
    example: '[0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24]',
    text: 'All runs above it, root first; empty for a root.',
  },
  {
    name: 'reference_example_id',
    group: 'Identifiers and hierarchy',
    type: varchar,
    unit: uuid,
    nullWhen: unsaid,
    example: 'c0a8d8f2-91c4-4a4e-9f3b-0b6a1c2d3e4f',
    text: 'The example of a dataset that the run was made from.',
  },
  {
    name: 'name',
    group: 'Basic metadata',
    type: varchar,
    unit: 'text',
    example: 'ChatOpenAI',
    text: 'Empty where nobody said one.',
  },
  {
    name: 'run_type',
    group: 'Basic metadata',
    type: varchar,
    unit: 'tool, chain, llm, retriever, embedding, prompt or parser',
    example: 'llm',
    text: 'What kind of step it was; chain where nobody said it.',
  },
  {
    name: 'start_time',
    group: 'Basic metadata',
    type: time,
    unit: moment,
    example: '2026-03-05 12:00:00.123456+00',
    text: 'When the run began, as its client said it. Days of an export go by the time in dotted_order, which clients may round otherwise.',
  },
  {
    name: 'end_time',
    group: 'Basic metadata',
    type: time,
    unit: moment,
    nullWhen: 'the run has not ended',
    example: '2026-03-05 12:00:01.5+00',
    text: 'When it ended.',
  },
  {
    name: 'status',
    group: 'Basic metadata',
    type: varchar,
    unit: 'success, error or pending',
    example: 'success',
    text: 'error where the run has an error, else success where it has ended, else pending.',
  },
  {
    name: 'is_root',
    group: 'Basic metadata',
    type: both('BOOLEAN'),
    unit: 'true or false',
    example: 'true',
    text: 'Whether the run begins its trace.',
  },
  {
    name: 'dotted_order',
    group: 'Basic metadata',
    type: varchar,
    unit: 'segments of start time and id, joined by dots',
    example: '20260305T120000123456Z0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'Place of the run in its trace, root first. Of runs that came without one it is put together from their parents.',
  },
  {
    name: 'trace_tier',
    group: 'Basic metadata',
    type: varchar,
    unit: 'text',
    nullWhen: 'always: nothing fills it yet',
    example: 'NULL',
    text: 'How long the trace is kept.',
  },
  {
    name: 'inputs',
    group: 'Run data',
    type: varchar,
    unit: json,
    example: '{"question":"Why?"}',
    text: 'The text that came; `{}` where there are none.',
  },
  {
    name: 'outputs',
    group: 'Run data',
    type: varchar,
    unit: json,
    nullWhen: unsaid,
    example: '{"answer":42}',
    text: 'The text that came.',
  },
  {
    name: 'error',
    group: 'Run data',
    type: varchar,
    unit: 'text',
    nullWhen: 'the run did not fail',
    example: 'ValueError: no such tool',
    text: 'The decoded text. Half of a surrogate pair, which UTF-8 cannot hold, is U+FFFD.',
  },
  {
    name: 'extra',
    group: 'Run data',
    type: varchar,
    unit: json,
    nullWhen: unsaid,
    example: '{"metadata":{"thread_id":"7"}}',
    text: 'The text that came; metadata is in it.',
  },
  {
    name: 'events',
    group: 'Run data',
    type: varchar,
    unit: json,
    nullWhen: unsaid,
    example: '[{"name":"new_token","time":"2026-03-05T12:00:00.9"}]',
    text: 'The text that came.',
  },
  {
    name: 'tags',
    group: 'Tags and feedback',
    type: list,
    unit: 'list of text; v1: JSON array as it came',
    nullWhen: unsaid,
    example: '[prod, beta]',
    text: 'In v2_beta a tag that is no text is its JSON, with numbers in their shortest form, and half of a surrogate pair is U+FFFD.',
  },
  {
    name: 'feedback_stats',
    group: 'Tags and feedback',
    type: varchar,
    unit: json,
    nullWhen: 'the run has no feedback',
    example: '{"helpful":{"values":{},"comments":[],"n":2,"avg":0.5}}',
    text: 'Statistics by feedback key, at the moment of the export.',
  },
  {
    name: 'total_tokens',
    group: 'Tokens and costs',
    type: both('BIGINT'),
    unit: 'tokens',
    example: '120',
    text: 'Of a model call; else 0.',
  },
  {
    name: 'prompt_tokens',
    group: 'Tokens and costs',
    type: both('BIGINT'),
    unit: 'tokens',
    example: '100',
    text: 'Of a model call; else 0.',
  },
  {
    name: 'completion_tokens',
    group: 'Tokens and costs',
    type: both('BIGINT'),
    unit: 'tokens',
    example: '20',
    text: 'Of a model call; else 0.',
  },
  {
    name: 'total_cost',
    group: 'Tokens and costs',
    type: varchar,
    unit: cost,
    nullWhen: unsaid,
    example: '0.00036',
    text: 'As exact as it came: no DECIMAL has so many digits. `CAST(total_cost AS DECIMAL(38, 18))` is exact for usual costs.',
  },
  {
    name: 'prompt_cost',
    group: 'Tokens and costs',
    type: varchar,
    unit: cost,
    nullWhen: unsaid,
    example: '0.0003',
    text: 'As total_cost.',
  },
  {
    name: 'completion_cost',
    group: 'Tokens and costs',
    type: varchar,
    unit: cost,
    nullWhen: unsaid,
    example: '0.00006',
    text: 'As total_cost.',
  },
  {
    name: 'first_token_time',
    group: 'Tokens and costs',
    type: time,
    unit: moment,
    nullWhen: 'no event of a model call tells it',
    example: '2026-03-05 12:00:00.9+00',
    text: 'When a streaming model call gave its first token.',
  },
] as const satisfies readonly RunParquetColumn[];

/** A name that `export_fields` may hold. */
export type ExportField = (typeof runParquetColumns)[number]['name'];

export const exportFields: readonly ExportField[] = runParquetColumns.map(({ name }) => name);

export function isExportField(name: string): name is ExportField {
  return (exportFields as readonly string[]).includes(name);
}
