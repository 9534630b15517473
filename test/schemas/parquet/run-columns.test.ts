import { describe, expect, it } from 'vitest';
import { getColumnType } from '../../../pipelines/exports/chunk-columns.ts';
import { runFields } from '../../../pipelines/runs/run-fields.ts';
import { exportFields, isExportField, runParquetColumns } from '../../../schemas/parquet/run-columns.ts';

/** The columns that consumers of the files rely on, in order. */
const specified = `id, tenant_id, session_id, trace_id, parent_run_id, parent_run_ids, reference_example_id, name, run_type,
  start_time, end_time, status, is_root, dotted_order, trace_tier, inputs, outputs, error, extra, events, tags, feedback_stats,
  total_tokens, prompt_tokens, completion_tokens, total_cost, prompt_cost, completion_cost, first_token_time`;

const types = {
  text: 'VARCHAR',
  integer: 'BIGINT',
  boolean: 'BOOLEAN',
  time: 'TIMESTAMP',
  'zoned-time': 'TIMESTAMP WITH TIME ZONE',
  'json-text': 'VARCHAR',
  'json-list': 'VARCHAR[]',
};

describe('columns of exports', () => {
  it('are those of the specification', () => {
    expect([...exportFields].sort()).toEqual(specified.split(/,\s*/).sort());
  });

  it('are fields of the run query, except two', () => {
    expect(exportFields.filter((field) => !Object.hasOwn(runFields, field))).toEqual(['tenant_id', 'is_root']);
  });

  it.each(runParquetColumns)('$name has the types of the table', ({ name, type }) => {
    expect(types[getColumnType(name, 'v1')]).toBe(type.v1);
    expect(types[getColumnType(name, 'v2_beta')]).toBe(type.v2_beta);
  });

  it.each([
    ['id', true],
    ['serialized', false],
    ['toString', false],
    ['', false],
  ])('%s may be requested: %s', (name, expected) => {
    expect(isExportField(name)).toBe(expected);
  });
});
