import { type Static, Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { cronFields, onRunCompleted } from '../../../pipelines/agents/crons/cron.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { JsonObject, nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';
import { Closed, given, words } from '../agent-schema.ts';
import type { Agents } from '../agent-services.ts';
import { RunBody } from '../runs/run-body.ts';

const run = RunBody.properties;

/** Fields of each run of a cron, as in a request for a run. */
const payloadFields = {
  input: run.input,
  config: run.config,
  context: run.context,
  webhook: run.webhook,
  interrupt_before: run.interrupt_before,
  interrupt_after: run.interrupt_after,
  stream_mode: run.stream_mode,
  stream_subgraphs: run.stream_subgraphs,
  stream_resumable: run.stream_resumable,
  durability: run.durability,
  checkpoint_during: run.checkpoint_during,
  multitask_strategy: run.multitask_strategy,
  feedback_keys: run.feedback_keys,
};

const Schedule = Text({
  maxLength: 1_000,
  description:
    'Minute, hour, day of the month, month, day of the week. If both days are restricted, either one must match.',
});

const cronOptions = {
  timezone: optional(Text({ maxLength: 100 }), {
    description: 'IANA time zone of the schedule. Default: UTC.',
  }),
  end_time: optional(Timestamp(), { description: 'Time after which the cron does not fire.' }),
  enabled: optional(Type.Boolean(), { description: 'Default: true.' }),
  metadata: optional(JsonObject(), { description: 'Metadata of the cron and of each of its runs.' }),
  on_run_completed: optional(words(onRunCompleted), {
    description: 'What happens to the thread of each run if the cron has no thread. Default: delete.',
  }),
};

/** Source: openapi/agent-server.json, CronCreate and ThreadCronCreate; reference `agent-server.md` 6. */
const cronBody = { schedule: Schedule, assistant_id: run.assistant_id, ...cronOptions, ...payloadFields };
const notCronFields = Object.keys(run).filter((name) => !Object.hasOwn(cronBody, name));
export const CronBody = Closed(cronBody, notCronFields);
export const CronChangesBody = Closed({ schedule: optional(Schedule), ...cronOptions, ...payloadFields }, [
  ...notCronFields,
  'assistant_id',
]);

/** Returns the payload of a request body. @throws FIELD_NOT_BUILT */
export function readPayload(
  body: Static<typeof CronChangesBody>,
  hasThread: boolean,
): Readonly<Record<string, unknown>> {
  const values: Readonly<Record<string, unknown>> = body;
  // The thread belongs to the caller and is not deleted with a run.
  if (hasThread && body.on_run_completed === 'delete')
    throw runlakeError('FIELD_NOT_BUILT', { field: 'on_run_completed' });
  const { input } = body;
  const fields = Object.fromEntries(
    Object.keys(payloadFields)
      .filter((name) => name !== 'input')
      .map((name) => [name, values[name]]),
  );
  return { ...given(fields), ...(input !== undefined && { input }) };
}

/** Converts a time to ISO 8601 in UTC. A time without a zone is UTC. */
export function normaliseEndTime(text: string): string {
  return new Date((parseTime(text) as number) / 1_000).toISOString();
}

export const Cron = Type.Object({
  cron_id: Uuid(),
  assistant_id: Uuid(),
  thread_id: nullable(Uuid()),
  schedule: Type.String(),
  timezone: nullable(Type.String()),
  end_time: nullable(Timestamp()),
  next_run_date: nullable(Timestamp(), { description: 'Null if the cron does not fire in its current state.' }),
  on_run_completed: nullable(Type.String()),
  enabled: Type.Boolean(),
  payload: JsonObject({ description: 'Fields of each run.' }),
  metadata: JsonObject(),
  user_id: nullable(Type.String()),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});
/** With `select`, only the selected fields; `now` is the time of the server. */
export const SelectedCron = Type.Partial(Type.Object({ ...Cron.properties, now: Timestamp() }));
export const selectable = [...cronFields, 'now'] as const;

export const CronParams = Type.Object({ cron_id: Uuid() });

export const cronFilter = {
  assistant_id: optional(Text({ maxLength: 1_000, description: 'Id of the assistant or of its graph.' })),
  thread_id: optional(Uuid()),
  enabled: optional(Type.Boolean()),
  metadata: optional(JsonObject({ description: 'Only crons whose metadata contains it.' })),
};

/**
 * Refuses a payload that would fail each time the cron fires.
 * @throws WEBHOOK_INVALID, FIELD_NOT_BUILT if webhooks are not sent, FEEDBACK_ADDRESS_UNSET.
 */
export function requireValidPayload(
  { webhooks, takesFeedback }: Pick<Agents, 'webhooks' | 'takesFeedback'>,
  payload: { readonly webhook?: unknown; readonly feedback_keys?: unknown },
): void {
  const { webhook, feedback_keys: keys } = payload;
  if (Array.isArray(keys) && keys.length > 0 && !takesFeedback) throw runlakeError('FEEDBACK_ADDRESS_UNSET');
  if (typeof webhook !== 'string') return;
  if (webhooks === undefined) throw runlakeError('FIELD_NOT_BUILT', { field: 'webhook' });
  webhooks.check(webhook);
}
