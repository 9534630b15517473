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
  state_updated_at: Timestamp({ description: 'When its state last changed.' }),
  metadata: JsonObject({ description: 'With `graph_id` and `assistant_id` from the first run on.' }),
  status: Status,
  config: JsonObject({ description: 'Of the last run that was configured, with that of its assistant.' }),
  values: JsonValue({ description: 'State after the last run that ended.' }),
  interrupts: JsonObject({ description: 'What it waits for, by the id of the task that waits.' }),
  error: JsonValue({ description: 'Of the last run, where that failed.' }),
};

export const threadFields = Object.keys(fields);
export const Thread = Type.Object({
  ...fields,
  ttl: Type.Optional(JsonObject({ description: 'strategy, ttl_minutes and expires_at; only where it is asked for.' })),
});
export const SelectedThread = Type.Partial(
  Type.Object({ ...fields, extracted: JsonObject({ description: 'What `extract` asked for.' }) }),
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
    description:
      'How long it is kept after it last changed, and what then goes: all of it, or all but its latest state.',
  },
);

/** Where nothing is said of the strategy the thread goes as a whole. */
export function ttlOf(ttl: Static<typeof Ttl> | undefined): { strategy: TtlStrategy; minutes: number } | undefined {
  if (typeof ttl === 'number') return { strategy: 'delete', minutes: ttl };
  return ttl === undefined || ttl === null ? undefined : { strategy: ttl.strategy ?? 'delete', minutes: ttl.ttl };
}

/** A thread without what is answered only on request. */
export function showThread({ ttl: _onRequest, ...thread }: ThreadRecord): Omit<ThreadRecord, 'ttl'> {
  return thread;
}

export const ThreadState = Type.Object({
  values: JsonValue(),
  next: Type.Array(Type.String({ description: 'Nodes that come next.' })),
  tasks: Type.Array(JsonObject()),
  checkpoint: nullable(JsonObject()),
  parent_checkpoint: nullable(JsonObject()),
  metadata: JsonObject(),
  created_at: nullable(Timestamp()),
  interrupts: Type.Array(JsonObject()),
});
/** With `select` only some fields. */
export const SelectedThreadState = Type.Partial(ThreadState);
export const ThreadHistory = Type.Array(SelectedThreadState);

const stateFields = Object.keys(ThreadState.properties);
/** Which fields of states are answered. Source: the Python `langgraph-sdk` 0.4.14, ThreadStateSelectField. */
export const StateSelect = Type.Array(Type.String({ pattern: `^(?:${stateFields.join('|')}|values\\..{1,1000})$` }), {
  description: `Fields to answer with: ${stateFields.join(', ')}, or \`values.\` and one key of them.`,
  maxItems: 1_000,
});
