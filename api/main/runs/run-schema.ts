import { Type } from 'typebox';
import { runTypes } from '../../../pipelines/ingest/run-event/run-event.ts';
import { JsonObject, optional, Uuid } from '../../server/formats.ts';

export const RunType = Type.Union(runTypes.map((type) => Type.Literal(type)));

/** Without `format: 'date-time'`, which requires a zone. */
const Time = () =>
  Type.String({ description: 'UTC with microseconds and without zone, such as `2026-01-02T03:04:05.123456`.' });
const Counts = () => Type.Record(Type.String(), Type.Integer());
const Costs = () => Type.Record(Type.String(), Type.String());
const Cost = () => Type.String({ description: 'Decimal as text, with the precision that was sent.' });
const Ids = () => Type.Array(Uuid());

/** A run in responses. With `select` it has only the required fields and the selected ones. */
export const Run = Type.Object({
  id: Uuid(),
  name: Type.String({ description: 'Empty until the post of the run arrives.' }),
  run_type: RunType,
  start_time: Time(),
  end_time: optional(Time()),
  status: Type.String({
    description: '`error` if the run has an error, otherwise `success` if it has ended, otherwise `pending`.',
  }),
  error: optional(Type.String()),
  extra: optional(JsonObject()),
  events: optional(Type.Array(JsonObject())),
  inputs: Type.Optional(JsonObject({ description: 'The JSON that was sent, byte for byte; `{}` if none was sent.' })),
  inputs_preview: optional(Type.String()),
  inputs_s3_urls: optional(JsonObject()),
  outputs: optional(JsonObject({ description: 'The JSON that was sent, byte for byte.' })),
  outputs_preview: optional(Type.String()),
  outputs_s3_urls: optional(JsonObject()),
  serialized: optional(JsonObject()),
  tags: optional(Type.Array(Type.String())),
  trace_id: Uuid(),
  dotted_order: Type.String(),
  parent_run_id: optional(Uuid()),
  parent_run_ids: optional(Ids()),
  child_run_ids: optional(Ids()),
  direct_child_run_ids: optional(Ids()),
  execution_order: Type.Optional(Type.Integer()),
  session_id: Uuid(),
  reference_example_id: optional(Uuid()),
  reference_dataset_id: optional(Uuid()),
  manifest_id: optional(Uuid()),
  manifest_s3_id: optional(Uuid()),
  total_tokens: Type.Optional(Type.Integer()),
  prompt_tokens: Type.Optional(Type.Integer()),
  completion_tokens: Type.Optional(Type.Integer()),
  prompt_token_details: optional(Counts()),
  completion_token_details: optional(Counts()),
  total_cost: optional(Cost()),
  prompt_cost: optional(Cost()),
  completion_cost: optional(Cost()),
  prompt_cost_details: optional(Costs()),
  completion_cost_details: optional(Costs()),
  price_model_id: optional(Uuid()),
  first_token_time: optional(Time()),
  feedback_stats: optional(Type.Record(Type.String(), JsonObject())),
  s3_urls: optional(JsonObject({ description: 'Attachments: `attachment.<name>` to its `presigned_url`.' })),
  app_path: Type.String(),
  thread_id: optional(Type.String({ description: '`thread_id`, `session_id` or `conversation_id` of the metadata.' })),
  in_dataset: optional(Type.Boolean()),
  last_queued_at: optional(Time()),
  share_token: optional(Uuid()),
  trace_tier: optional(Type.String()),
  ttl_seconds: optional(Type.Integer()),
  trace_upgrade: Type.Optional(Type.Boolean()),
  messages: optional(Type.Array(JsonObject())),
  inserted_at: optional(Time()),
  trace_first_received_at: optional(Time()),
  trace_min_start_time: optional(Time()),
  trace_max_start_time: optional(Time()),
});
