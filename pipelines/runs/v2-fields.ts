import { formatTime } from '../ingest/run-event/times.ts';
import type { RunColumn } from './run-columns.ts';
import { createField, createFigureReader, nullField, quote, type RunField, runFields, truncate } from './run-fields.ts';
import type { TracedRunRow } from './run-rows.ts';

const formatZonedTime = (micros: number | undefined) => (micros === undefined ? undefined : `"${formatTime(micros)}Z"`);
const timeField = (column: RunColumn) => createField([column], (run) => formatZonedTime(run.number(column)));
const createUpperCaseField = (field: RunField): RunField => ({
  ...field,
  json: (run, related) => String(field.json(run, related)).toUpperCase(),
});
const costField = (name: 'total_cost' | 'prompt_cost' | 'completion_cost') => {
  const { columns, relatedKind } = runFields[name];
  return createField(columns, (run, related) => toJsonNumber(createFigureReader(name)(run, related)), relatedKind);
};

/** Converts a details field to version 2, in which details are in `raw` and costs are numbers. */
const detailField = (field: RunField, isCost = false): RunField => ({
  ...field,
  json(run, related) {
    const json = String(field.json(run, related));
    if (json === 'null') return json;
    return `{"raw":${isCost ? JSON.stringify(JSON.parse(json), (_key, value) => toNumber(value)) : json}}`;
  },
});

function toJsonNumber(decimal: string | undefined): string | undefined {
  return decimal === undefined ? undefined : JSON.stringify(Number(decimal));
}

function toNumber(value: unknown): unknown {
  return typeof value === 'string' ? Number(value) : value;
}

function formatLatency(run: TracedRunRow): string | undefined {
  const [start, end] = [run.number('startedAtMicros'), run.number('endedAtMicros')];
  return start === undefined || end === undefined ? undefined : JSON.stringify((end - start) / 1e6);
}

/** Reads the text of the run's error. A stored error is a JSON string, unless a client sent another value. */
function readErrorText(run: TracedRunRow): string | undefined {
  const stored = run.text('error');
  if (stored === undefined) return undefined;
  const value: unknown = JSON.parse(stored);
  return typeof value === 'string' ? value : stored;
}

function formatAttachments(json: string | undefined): string | undefined {
  if (json === undefined) return undefined;
  const links = JSON.parse(json) as Record<string, { presigned_url: string }>;
  const prefix = 'attachment.';
  return JSON.stringify(
    Object.fromEntries(Object.entries(links).map(([key, { presigned_url: url }]) => [key.slice(prefix.length), url])),
  );
}

/** Every field of a run in version 2, in the order of the response. Source: the public run schema (v2). */
export const v2Fields = {
  id: runFields.id,
  name: runFields.name,
  run_type: createUpperCaseField(runFields.run_type),
  status: createUpperCaseField(runFields.status),
  start_time: timeField('startedAtMicros'),
  end_time: timeField('endedAtMicros'),
  latency_seconds: createField(['startedAtMicros', 'endedAtMicros'], formatLatency),
  first_token_time: timeField('firstTokenTimeMicros'),
  error: runFields.error,
  error_preview: createField(['error'], (run) => quote(truncate(readErrorText(run)))),
  extra: runFields.extra,
  metadata: createField(['metadata'], (run) => run.bytes('metadata')),
  events: runFields.events,
  inputs: runFields.inputs,
  inputs_preview: runFields.inputs_preview,
  outputs: runFields.outputs,
  outputs_preview: runFields.outputs_preview,
  manifest: runFields.serialized,
  parent_run_id: runFields.parent_run_id,
  parent_run_ids: runFields.parent_run_ids,
  project_id: runFields.session_id,
  trace_id: runFields.trace_id,
  thread_id: runFields.thread_id,
  dotted_order: runFields.dotted_order,
  is_root: createField(['parentRunId'], (run) =>
    String(run.key.runId === run.key.traceId || run.text('parentRunId') === undefined),
  ),
  reference_example_id: runFields.reference_example_id,
  reference_dataset_id: runFields.reference_dataset_id,
  total_tokens: runFields.total_tokens,
  prompt_tokens: runFields.prompt_tokens,
  completion_tokens: runFields.completion_tokens,
  total_cost: costField('total_cost'),
  prompt_cost: costField('prompt_cost'),
  completion_cost: costField('completion_cost'),
  prompt_token_details: detailField(runFields.prompt_token_details),
  completion_token_details: detailField(runFields.completion_token_details),
  prompt_cost_details: detailField(runFields.prompt_cost_details, true),
  completion_cost_details: detailField(runFields.completion_cost_details, true),
  price_model_id: runFields.price_model_id,
  tags: runFields.tags,
  app_path: runFields.app_path,
  attachments: createField(
    [],
    (run, related) => formatAttachments(related.attachmentUrls.get(run.key.runId)),
    'attachmentUrls',
  ),
  thread_evaluation_time: nullField,
  is_in_dataset: runFields.in_dataset,
  last_queued_at: createField(
    [],
    (run, related) => formatZonedTime(related.uses.get(run.key.runId)?.lastQueuedMicros),
    'uses',
  ),
  share_url: createField([], (run, related) => quote(related.shares.get(run.key.traceId)?.url), 'shares'),
  feedback_stats: runFields.feedback_stats,
  // Runs are stored without the user whose key sent them.
  ls_user_id: nullField,
} as const satisfies Record<string, RunField>;

/** Fields that a shared trace does not show: ids of other objects, and links that stay valid after sharing ends. */
const privateFields: readonly string[] = [
  'app_path',
  'attachments',
  'share_url',
  'last_queued_at',
  'is_in_dataset',
  'reference_dataset_id',
  'ls_user_id',
];

/** The fields of version 2 that a shared trace shows. */
export const publicV2Fields: Readonly<Record<string, RunField>> = Object.fromEntries(
  Object.entries(v2Fields).filter(([name]) => !privateFields.includes(name)),
);

/** Fields of a trace in the list of traces of a thread. They are the fields of its root run, some under other names. */
export const threadTraceFields = {
  trace_id: v2Fields.trace_id,
  thread_id: v2Fields.thread_id,
  name: v2Fields.name,
  start_time: v2Fields.start_time,
  end_time: v2Fields.end_time,
  latency: v2Fields.latency_seconds,
  first_token_time: v2Fields.first_token_time,
  inputs: v2Fields.inputs,
  inputs_preview: v2Fields.inputs_preview,
  outputs: v2Fields.outputs,
  outputs_preview: v2Fields.outputs_preview,
  error: v2Fields.error,
  error_preview: v2Fields.error_preview,
  total_tokens: v2Fields.total_tokens,
  prompt_tokens: v2Fields.prompt_tokens,
  completion_tokens: v2Fields.completion_tokens,
  total_cost: v2Fields.total_cost,
  prompt_cost: v2Fields.prompt_cost,
  completion_cost: v2Fields.completion_cost,
  prompt_token_details: v2Fields.prompt_token_details,
  completion_token_details: v2Fields.completion_token_details,
  prompt_cost_details: v2Fields.prompt_cost_details,
  completion_cost_details: v2Fields.completion_cost_details,
  turn_number: createField(['threadId'], (run, related) => related.turns.get(run.key.traceId)?.toString(), 'turns'),
} as const satisfies Record<string, RunField>;

/** Fields that cover all runs of a trace. Tokens and costs of the root run are those of the trace. */
export const traceAggregateFields = {
  total_tokens: v2Fields.total_tokens,
  total_cost: v2Fields.total_cost,
  first_token_time: createField(
    [],
    (run, related) => formatZonedTime(related.firstTokens.get(run.key.traceId)),
    'firstTokens',
  ),
} as const satisfies Record<string, RunField>;

export type V2FieldName = keyof typeof v2Fields;
