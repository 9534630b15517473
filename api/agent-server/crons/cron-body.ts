import { type Static, Type } from 'typebox';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { cronFields, onRunCompleted } from '../../../pipelines/agents/crons/cron.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { JsonObject, nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';
import { Closed, given, words } from '../agent-schema.ts';
import type { Agents } from '../agent-services.ts';
import { RunBody } from '../runs/run-body.ts';

const run = RunBody.properties;

/** What each run of a cron is given, as the body of a request for a run has it. */
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
    'Minute, hour, day of the month, month, day of the week; either day is enough where both are restricted.',
});

const cronOptions = {
  timezone: optional(Text({ maxLength: 100 }), {
    description: 'Name of the IANA database in whose clocks the schedule is read. Default: UTC.',
  }),
  end_time: optional(Timestamp(), { description: 'The last instant that it may fire at.' }),
  enabled: optional(Type.Boolean(), { description: 'Default: true.' }),
  metadata: optional(JsonObject(), { description: 'Of the cron, and of each of its runs.' }),
  on_run_completed: optional(words(onRunCompleted), {
    description: 'What becomes of the thread of each run, where the cron has none. Default: delete.',
  }),
};

/** Source: openapi/agent-server.json, CronCreate and ThreadCronCreate; reference `agent-server.md` 6. */
const cronBody = { schedule: Schedule, assistant_id: run.assistant_id, ...cronOptions, ...payloadFields };
const notOfCrons = Object.keys(run).filter((name) => !Object.hasOwn(cronBody, name));
export const CronBody = Closed(cronBody, notOfCrons);
export const CronChangesBody = Closed({ schedule: optional(Schedule), ...cronOptions, ...payloadFields }, [
  ...notOfCrons,
  'assistant_id',
]);

/** The payload that a body asks for. @throws FIELD_NOT_BUILT */
export function payloadOf(body: Static<typeof CronChangesBody>, hasThread: boolean): Readonly<Record<string, unknown>> {
  const asked: Readonly<Record<string, unknown>> = body;
  // The thread is the caller's: it does not go with a run.
  if (hasThread && body.on_run_completed === 'delete') throw fault('FIELD_NOT_BUILT', { field: 'on_run_completed' });
  const { input } = body;
  const fields = Object.fromEntries(
    Object.keys(payloadFields)
      .filter((name) => name !== 'input')
      .map((name) => [name, asked[name]]),
  );
  return { ...given(fields), ...(input !== undefined && { input }) };
}

/** Times without a zone are UTC. */
export function endTimeOf(text: string): string {
  return new Date((parseTime(text) as number) / 1_000).toISOString();
}

export const Cron = Type.Object({
  cron_id: Uuid(),
  assistant_id: Uuid(),
  thread_id: nullable(Uuid()),
  schedule: Type.String(),
  timezone: nullable(Type.String()),
  end_time: nullable(Timestamp()),
  next_run_date: nullable(Timestamp(), { description: 'Null: it does not fire as it stands.' }),
  on_run_completed: nullable(Type.String()),
  enabled: Type.Boolean(),
  payload: JsonObject({ description: 'What each run is given.' }),
  metadata: JsonObject(),
  user_id: nullable(Type.String()),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});
/** With `select` only some fields; `now` is the time of the server. */
export const SelectedCron = Type.Partial(Type.Object({ ...Cron.properties, now: Timestamp() }));
export const selectable = [...cronFields, 'now'] as const;

export const CronParams = Type.Object({ cron_id: Uuid() });

export const cronFilter = {
  assistant_id: optional(Text({ maxLength: 1_000, description: 'Id of the assistant or of its graph.' })),
  thread_id: optional(Uuid()),
  enabled: optional(Type.Boolean()),
  metadata: optional(JsonObject({ description: 'Crons whose metadata holds all of it.' })),
};

/**
 * What would be refused each time it fires is refused at once.
 * @throws WEBHOOK_INVALID, FIELD_NOT_BUILT if nothing calls webhooks, FEEDBACK_ADDRESS_UNSET.
 */
export function requireTakeable(
  { webhooks, takesFeedback }: Pick<Agents, 'webhooks' | 'takesFeedback'>,
  payload: { readonly webhook?: unknown; readonly feedback_keys?: unknown },
): void {
  const { webhook, feedback_keys: keys } = payload;
  if (Array.isArray(keys) && keys.length > 0 && !takesFeedback) throw fault('FEEDBACK_ADDRESS_UNSET');
  if (typeof webhook !== 'string') return;
  if (webhooks === undefined) throw fault('FIELD_NOT_BUILT', { field: 'webhook' });
  webhooks.check(webhook);
}
