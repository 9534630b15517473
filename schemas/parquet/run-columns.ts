/** DuckDB types of the columns. Each of them has an equivalent in Parquet. */
export type RunColumnType = 'VARCHAR' | 'VARCHAR[]' | 'BIGINT' | 'BOOLEAN' | 'TIMESTAMP' | 'TIMESTAMP WITH TIME ZONE';

export type RunColumnGroup =
  | 'Identifiers and hierarchy'
  | 'Basic metadata'
  | 'Run data'
  | 'Tags and feedback'
  | 'Tokens and costs';

/** A column of exported runs. */
export interface RunParquetColumn {
  readonly name: string;
  readonly group: RunColumnGroup;
  /** Column type in each format version. */
  readonly type: { readonly v1: RunColumnType; readonly v2_beta: RunColumnType };
  /** Unit of a number, or format of a text value. */
  readonly unit: string;
  /** When the value is null; absent if the value is never null. */
  readonly nullWhen?: string;
  /** Example value, as DuckDB prints it in v2_beta. */
  readonly example: string;
  readonly text: string;
}

const createCommonType = (type: RunColumnType) => ({ v1: type, v2_beta: type });
const varcharType = createCommonType('VARCHAR');
const timestampType = { v1: 'TIMESTAMP', v2_beta: 'TIMESTAMP WITH TIME ZONE' } as const;
const listType = { v1: 'VARCHAR', v2_beta: 'VARCHAR[]' } as const;
const uuid = 'UUID, lower case';
const timestampUnit = 'UTC, microseconds';
const json = 'JSON';
const costUnit = 'decimal, up to 21 digits before and 20 after the decimal point';
const nullWhenNotSent = 'the client sent none';

/**
 * All export columns, in their default order in the files. A column has the same values as the field of the same name
 * in `POST /runs/query`; `tenant_id` and `is_root` exist only in exports. `docs/reference/export-columns.md` is
 * generated from this table.
 */
export const runParquetColumns = [
  {
    name: 'id',
    group: 'Identifiers and hierarchy',
    type: varcharType,
    unit: uuid,
    example: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'Id of the run.',
  },
  {
    name: 'tenant_id',
    group: 'Identifiers and hierarchy',
    type: varcharType,
    unit: uuid,
    example: '5f0c8e8e-2b9a-4c55-8b57-6d1f1f0a9c11',
    text: 'Id of the workspace.',
  },
  {
    name: 'session_id',
    group: 'Identifiers and hierarchy',
    type: varcharType,
    unit: uuid,
    example: '9c1d7f0e-8a64-4f1b-a0d1-52b7c7f1c5d3',
    text: 'Id of the tracing project.',
  },
  {
    name: 'trace_id',
    group: 'Identifiers and hierarchy',
    type: varcharType,
    unit: uuid,
    example: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'Id of the trace, usually the id of the root run.',
  },
  {
    name: 'parent_run_id',
    group: 'Identifiers and hierarchy',
    type: varcharType,
    unit: uuid,
    nullWhen: 'the run is a root',
    example: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'Id of the run that called it.',
  },
  {
    name: 'parent_run_ids',
    group: 'Identifiers and hierarchy',
    type: listType,
    unit: `list of ${uuid}; v1: JSON array`,
    example: '[0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24]',
    text: 'Ids of all ancestors, root first; empty for a root run.',
  },
  {
    name: 'reference_example_id',
    group: 'Identifiers and hierarchy',
    type: varcharType,
    unit: uuid,
    nullWhen: nullWhenNotSent,
    example: 'c0a8d8f2-91c4-4a4e-9f3b-0b6a1c2d3e4f',
    text: 'Id of the dataset example that the run was created from.',
  },
  {
    name: 'name',
    group: 'Basic metadata',
    type: varcharType,
    unit: 'text',
    example: 'ChatOpenAI',
    text: 'Name of the run; empty if the client sent none.',
  },
  {
    name: 'run_type',
    group: 'Basic metadata',
    type: varcharType,
    unit: 'tool, chain, llm, retriever, embedding, prompt or parser',
    example: 'llm',
    text: 'Type of the run; chain if the client sent none.',
  },
  {
    name: 'start_time',
    group: 'Basic metadata',
    type: timestampType,
    unit: timestampUnit,
    example: '2026-03-05 12:00:00.123456+00',
    text: 'Start time that the client sent. The days of an export are determined by the time in dotted_order, which clients may round differently.',
  },
  {
    name: 'end_time',
    group: 'Basic metadata',
    type: timestampType,
    unit: timestampUnit,
    nullWhen: 'the run has not ended',
    example: '2026-03-05 12:00:01.5+00',
    text: 'End time that the client sent.',
  },
  {
    name: 'status',
    group: 'Basic metadata',
    type: varcharType,
    unit: 'success, error or pending',
    example: 'success',
    text: 'error if the run has an error; otherwise success if it has ended, else pending.',
  },
  {
    name: 'is_root',
    group: 'Basic metadata',
    type: createCommonType('BOOLEAN'),
    unit: 'true or false',
    example: 'true',
    text: 'Whether the run is the root of its trace.',
  },
  {
    name: 'dotted_order',
    group: 'Basic metadata',
    type: varcharType,
    unit: 'segments of start time and id, joined by dots',
    example: '20260305T120000123456Z0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24',
    text: 'Position of the run in its trace, root first. For runs that were sent without it, it is derived from their parents.',
  },
  {
    name: 'trace_tier',
    group: 'Basic metadata',
    type: varcharType,
    unit: 'text',
    example: 'longlived',
    text: 'Retention tier of the trace: shortlived or longlived.',
  },
  {
    name: 'inputs',
    group: 'Run data',
    type: varcharType,
    unit: json,
    example: '{"question":"Why?"}',
    text: 'Unchanged JSON as received; `{}` if there are none.',
  },
  {
    name: 'outputs',
    group: 'Run data',
    type: varcharType,
    unit: json,
    nullWhen: nullWhenNotSent,
    example: '{"answer":42}',
    text: 'Unchanged JSON as received.',
  },
  {
    name: 'error',
    group: 'Run data',
    type: varcharType,
    unit: 'text',
    nullWhen: 'the run did not fail',
    example: 'ValueError: no such tool',
    text: 'The decoded text. A lone surrogate, which UTF-8 cannot represent, becomes U+FFFD.',
  },
  {
    name: 'extra',
    group: 'Run data',
    type: varcharType,
    unit: json,
    nullWhen: nullWhenNotSent,
    example: '{"metadata":{"thread_id":"7"}}',
    text: 'Unchanged JSON as received; contains the metadata.',
  },
  {
    name: 'events',
    group: 'Run data',
    type: varcharType,
    unit: json,
    nullWhen: nullWhenNotSent,
    example: '[{"name":"new_token","time":"2026-03-05T12:00:00.9"}]',
    text: 'Unchanged JSON as received.',
  },
  {
    name: 'tags',
    group: 'Tags and feedback',
    type: listType,
    unit: 'list of text; v1: JSON array as received',
    nullWhen: nullWhenNotSent,
    example: '[prod, beta]',
    text: 'In v2_beta, a tag that is not a string is its JSON text, with numbers in their shortest form, and a lone surrogate becomes U+FFFD.',
  },
  {
    name: 'feedback_stats',
    group: 'Tags and feedback',
    type: varcharType,
    unit: json,
    nullWhen: 'the run has no feedback',
    example: '{"helpful":{"values":{},"comments":[],"n":2,"avg":0.5}}',
    text: 'Statistics by feedback key at the time of the export.',
  },
  {
    name: 'total_tokens',
    group: 'Tokens and costs',
    type: createCommonType('BIGINT'),
    unit: 'tokens',
    example: '120',
    text: 'Tokens of a model call; 0 for other runs.',
  },
  {
    name: 'prompt_tokens',
    group: 'Tokens and costs',
    type: createCommonType('BIGINT'),
    unit: 'tokens',
    example: '100',
    text: 'Tokens of a model call; 0 for other runs.',
  },
  {
    name: 'completion_tokens',
    group: 'Tokens and costs',
    type: createCommonType('BIGINT'),
    unit: 'tokens',
    example: '20',
    text: 'Tokens of a model call; 0 for other runs.',
  },
  {
    name: 'total_cost',
    group: 'Tokens and costs',
    type: varcharType,
    unit: costUnit,
    nullWhen: nullWhenNotSent,
    example: '0.00036',
    text: 'Exact decimal as text, because no DECIMAL type has enough digits. `CAST(total_cost AS DECIMAL(38, 18))` is exact for usual costs.',
  },
  {
    name: 'prompt_cost',
    group: 'Tokens and costs',
    type: varcharType,
    unit: costUnit,
    nullWhen: nullWhenNotSent,
    example: '0.0003',
    text: 'Same format as total_cost.',
  },
  {
    name: 'completion_cost',
    group: 'Tokens and costs',
    type: varcharType,
    unit: costUnit,
    nullWhen: nullWhenNotSent,
    example: '0.00006',
    text: 'Same format as total_cost.',
  },
  {
    name: 'first_token_time',
    group: 'Tokens and costs',
    type: timestampType,
    unit: timestampUnit,
    nullWhen: 'the run has no event for it',
    example: '2026-03-05 12:00:00.9+00',
    text: 'Time of the first token of a streaming model call.',
  },
] as const satisfies readonly RunParquetColumn[];

/** A column name that `export_fields` accepts. */
export type ExportField = (typeof runParquetColumns)[number]['name'];

export const exportFields: readonly ExportField[] = runParquetColumns.map(({ name }) => name);

export function isExportField(name: string): name is ExportField {
  return (exportFields as readonly string[]).includes(name);
}
