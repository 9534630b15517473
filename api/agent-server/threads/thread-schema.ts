import { type Static, Type } from 'typebox';
import {
  type Thread as ThreadRecord,
  type TtlStrategy,
  threadStatuses,
} from '../../../pipelines/agents/threads/thread.ts';
import { JsonObject, nullable, optional, Timestamp, Uuid } from '../../server/formats.ts';
import { Closed, JsonValue, words } from '../agent-schema.ts';

export const ThreadParams = Type.Object({ thread_id: Uuid() });

const Status = words(threadStatuses);

const fields = {
  thread_id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  state_updated_at: Timestamp({ description: 'Time of the last change of the state.' }),
  metadata: JsonObject({ description: 'Contains `graph_id` and `assistant_id` from the first run on.' }),
  status: Status,
  config: JsonObject({ description: 'Configuration of the last configured run, merged with that of its assistant.' }),
  values: JsonValue({ description: 'State after the last ended run.' }),
  interrupts: JsonObject({ description: 'Open interrupts by the id of their task.' }),
  error: JsonValue({ description: 'Error of the last run if it failed.' }),
};

export const threadFields = Object.keys(fields);
export const Thread = Type.Object({
  ...fields,
  ttl: Type.Optional(JsonObject({ description: 'strategy, ttl_minutes and expires_at; only with `include=ttl`.' })),
});
export const SelectedThread = Type.Partial(
  Type.Object({ ...fields, extracted: JsonObject({ description: 'Values of the paths in `extract`.' }) }),
);

export const Ttl = optional(
  Type.Union([
    Type.Number({ minimum: 0, maximum: 1e9, description: 'Minutes; strategy delete.' }),
    Closed({
      ttl: Type.Number({ minimum: 0, maximum: 1e9, description: 'Minutes.' }),
      strategy: optional(words(['delete', 'keep_latest'])),
    }),
  ]),
  {
    description: 'TTL after the last change, and what is deleted then: the thread, or all but its latest state.',
  },
);

/** Converts a TTL; the default strategy deletes the thread. */
export function normaliseTtl(
  ttl: Static<typeof Ttl> | undefined,
): { strategy: TtlStrategy; minutes: number } | undefined {
  if (typeof ttl === 'number') return { strategy: 'delete', minutes: ttl };
  return ttl === undefined || ttl === null ? undefined : { strategy: ttl.strategy ?? 'delete', minutes: ttl.ttl };
}

/** Removes the fields that are returned only on request. */
export function showThread({ ttl: _onRequest, ...thread }: ThreadRecord): Omit<ThreadRecord, 'ttl'> {
  return thread;
}

export const ThreadState = Type.Object({
  values: JsonValue(),
  next: Type.Array(Type.String({ description: 'Next nodes.' })),
  tasks: Type.Array(JsonObject()),
  checkpoint: nullable(JsonObject()),
  parent_checkpoint: nullable(JsonObject()),
  metadata: JsonObject(),
  created_at: nullable(Timestamp()),
  interrupts: Type.Array(JsonObject()),
});
/** With `select`, only the selected fields. */
export const SelectedThreadState = Type.Partial(ThreadState);
export const ThreadHistory = Type.Array(SelectedThreadState);

const stateFields = Object.keys(ThreadState.properties);
/** Fields of states to return. Source: the Python `langgraph-sdk` 0.4.14, ThreadStateSelectField. */
export const StateSelect = Type.Array(Type.String({ pattern: `^(?:${stateFields.join('|')}|values\\..{1,1000})$` }), {
  description: `Fields of the response: ${stateFields.join(', ')}, or \`values.\` and one of its keys.`,
  maxItems: 1_000,
});
