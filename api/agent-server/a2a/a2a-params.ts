import { type Static, type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import { JsonObject, optional, Text, Uuid } from '../../server/formats.ts';
import { exceedsMaxElements } from '../../server/schema-check.ts';
import { words } from '../agent-schema.ts';
import { A2aError } from './a2a-error.ts';

/** Any text: an id that no task has is reported by an error of its own. Source: A2A 0.3.0, TaskNotFoundError. */
const TaskId = () => Type.String({ minLength: 1, maxLength: 1_000 });
const HistoryLength = () => optional(Type.Integer({ minimum: 0, maximum: 10 }));

export const SendParams = Type.Object({
  message: Type.Object({
    role: words(['user', 'agent', 'assistant']),
    parts: Type.Array(Type.Object({ kind: Type.String() }), { minItems: 1, maxItems: 1_000 }),
    messageId: Text({ minLength: 1, maxLength: 1_000 }),
    contextId: optional(Uuid()),
    taskId: optional(TaskId()),
    metadata: optional(JsonObject()),
  }),
  /** Deprecated form of `contextId`. */
  thread: optional(Type.Object({ threadId: optional(Uuid()) })),
  configuration: optional(
    Type.Object({
      blocking: optional(Type.Boolean()),
      historyLength: HistoryLength(),
      pushNotificationConfig: optional(JsonObject()),
    }),
  ),
});

export const GetParams = Type.Object({
  id: optional(TaskId()),
  /** Deprecated form of `id`. */
  taskId: optional(TaskId()),
  contextId: optional(TaskId()),
  historyLength: HistoryLength(),
});

/** @throws A2aError that names the first invalid location. */
export function readParams<const S extends TSchema>(schema: S, params: unknown): Static<S> {
  if (Value.Check(schema, params)) return params;
  const [first] = exceedsMaxElements(params) ? [] : Value.Errors(schema, params);
  const location = first?.instancePath.slice(1).replaceAll('/', '.');
  throw new A2aError(
    'invalidParams',
    `params${location ? `.${location}` : ''}: ${first?.message ?? 'does not match the schema'}`,
  );
}
