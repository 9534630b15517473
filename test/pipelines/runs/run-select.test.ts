import { expect, it } from 'vitest';
import { type SelectName, selectAll, selectFields, selectNames } from '../../../pipelines/runs/run-select.ts';

const mandatoryFields = 'id name run_type start_time status trace_id dotted_order session_id app_path'.split(' ');

it.each<[SelectName[], string[]]>([
  [['id'], []],
  [
    ['inputs', 'outputs'],
    ['inputs', 'outputs'],
  ],
  [
    ['inputs_or_signed_url', 'error_or_signed_url'],
    ['inputs', 'error'],
  ],
  [['manifest'], ['serialized']],
  [['trace_min_max_start_time'], ['trace_min_start_time', 'trace_max_start_time']],
  [['inputs', 'inputs', 'inputs_or_signed_url'], ['inputs']],
])('select %j', (names, more) => {
  expect([...selectFields(names).fields].sort()).toEqual([...mandatoryFields, ...more].sort());
});

it('an omitted and an empty select both mean the default', () => {
  expect(selectFields(undefined).fields).toEqual(selectFields([]).fields);
  expect(selectFields(undefined).fields).toContain('feedback_stats');
  expect(selectFields(undefined).fields).not.toContain('child_run_ids');
});

it('only the selected columns are read', () => {
  const { columns, relatedKinds } = selectFields(['name']);
  for (const heavy of ['inputs', 'outputs', 'extra', 'events', 'error'] as const)
    expect(columns.has(heavy)).toBe(false);
  expect(relatedKinds.size).toBe(0);
  expect([...selectFields(['child_run_ids', 'feedback_stats']).relatedKinds].sort()).toEqual([
    'children',
    'feedbackStats',
  ]);
});

it('a whole run without some fields', () => {
  expect(selectAll(['serialized']).fields).not.toContain('serialized');
  expect(selectAll().fields).toContain('serialized');
});

it('every name of the public vocabulary may be selected', () => {
  const names = `id name run_type start_time end_time status error extra events inputs inputs_preview inputs_s3_urls
    inputs_or_signed_url outputs outputs_preview outputs_s3_urls outputs_or_signed_url s3_urls error_or_signed_url
    events_or_signed_url extra_or_signed_url serialized_or_signed_url parent_run_id manifest_id manifest_s3_id manifest
    session_id serialized reference_example_id reference_dataset_id total_tokens prompt_tokens prompt_token_details
    completion_tokens completion_token_details total_cost prompt_cost prompt_cost_details completion_cost
    completion_cost_details price_model_id first_token_time trace_id dotted_order last_queued_at feedback_stats
    child_run_ids parent_run_ids tags in_dataset app_path share_token trace_tier trace_first_received_at ttl_seconds
    trace_upgrade thread_id trace_min_max_start_time messages inserted_at`.split(/\s+/);
  expect(names.filter((name) => !(selectNames as readonly string[]).includes(name))).toEqual([]);
});
