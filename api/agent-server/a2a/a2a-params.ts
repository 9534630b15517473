import { type Static, type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { isJsonObject } from '../../../infra/json/json-value.ts';
import { JsonObject, OneOf, optional, Text, Uuid } from '../../server/formats.ts';
import { exceedsMaxElements } from '../../server/schema-check.ts';
import type { Values } from '../access/authorizer.ts';

/** JSON-RPC error codes of A2A. Source: JSON-RPC 2.0, 5.1; A2A 0.3.0, 8; A2A 1.0, 5.4. */
const errorCodes = {
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
  taskNotFound: -32001,
  taskNotCancelable: -32002,
  pushNotSupported: -32003,
  unsupported: -32004,
  contentNotSupported: -32005,
  versionNotSupported: -32009,
} as const;

export interface RpcError {
  readonly code: number;
  readonly message: string;
}

/** An error that a protocol method returns as a JSON-RPC error. */
export class A2aError extends Error {
  readonly code: number;

  constructor(kind: keyof typeof errorCodes, message: string) {
    super(message);
    this.name = 'A2aError';
    this.code = errorCodes[kind];
  }
}

/** Converts an error to a JSON-RPC error. Returns undefined if the client did not cause the error. */
export function toRpcError(error: unknown): RpcError | undefined {
  if (error instanceof A2aError) return { code: error.code, message: error.message };
  if (!isRunlakeError(error) || error.class !== 'caller') return undefined;
  return {
    code: error.code === 'RUN_NOT_FOUND' ? errorCodes.taskNotFound : errorCodes.invalidParams,
    message: error.message,
  };
}

/** Returns true for custom authentication errors, which are sent with their HTTP status. Source: A2A 0.3.0, 4.4. */
export function isCustomAuthError(error: unknown): boolean {
  return isRunlakeError(error) && error.code.startsWith('AUTH_');
}

export const internalError: RpcError = { code: errorCodes.internal, message: 'Internal error' };

/**
 * Id of a task. Accepts any text, so that an unknown id results in a TaskNotFoundError instead of a validation error.
 * Source: A2A 0.3.0, TaskNotFoundError.
 */
const TaskId = () => Type.String({ minLength: 1, maxLength: 1_000 });
const HistoryLength = () => optional(Type.Integer({ minimum: 0, maximum: 10 }));

export const SendParams = Type.Object({
  message: Type.Object({
    role: OneOf(['user', 'agent', 'assistant']),
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

/** Validates params against a schema. @throws A2aError that names the first invalid location. */
export function readParams<const S extends TSchema>(schema: S, params: unknown): Static<S> {
  if (Value.Check(schema, params)) return params;
  const [first] = exceedsMaxElements(params) ? [] : Value.Errors(schema, params);
  const location = first?.instancePath.slice(1).replaceAll('/', '.');
  throw new A2aError(
    'invalidParams',
    `params${location ? `.${location}` : ''}: ${first?.message ?? 'does not match the schema'}`,
  );
}

interface MessageContent {
  /** All text parts, separated by line feeds. */
  readonly text: string | undefined;
  /** All data parts, merged. If two parts have the same key, the later part overwrites the earlier one. */
  readonly data: Values | undefined;
}

/** Reads the text and the data of a message. @throws A2aError for file parts and for invalid parts. */
export function readMessageContent(parts: readonly { readonly kind: string }[]): MessageContent {
  const texts: string[] = [];
  let data: Values | undefined;
  for (const part of parts) {
    if (part.kind === 'file') throw new A2aError('contentNotSupported', 'Parts that are files are not supported.');
    if (part.kind === 'text' && 'text' in part && typeof part.text === 'string') texts.push(part.text);
    else if (part.kind === 'data' && 'data' in part && isJsonObject(part.data)) data = { ...data, ...part.data };
    else throw new A2aError('invalidParams', 'params.message.parts: must be text with `text` or data with `data`');
  }
  return { text: texts.length === 0 ? undefined : texts.join('\n'), data };
}

/**
 * Builds the input of the graph: the data, plus the text as an additional message. The graph assigns the id of this
 * message, because a message whose id was used before would replace the earlier message.
 */
export function buildInput({ text, data }: MessageContent, { role }: { readonly role: string }) {
  if (text === undefined) return data;
  const previousMessages = Array.isArray(data?.messages) ? data.messages : [];
  return { ...data, messages: [...previousMessages, { role: role === 'user' ? 'user' : 'assistant', content: text }] };
}

/**
 * Builds the value that resumes an interrupt. For several interrupts, this is the data `{resume: [{id, value}]}`.
 * Otherwise it is `resume` or the whole data or, without data, the text.
 */
export function buildResumeValue({ text, data }: MessageContent): unknown {
  if (data === undefined) return text;
  const resumeValue = 'resume' in data ? data.resume : data;
  if (!Array.isArray(resumeValue) || !resumeValue.every((one) => isJsonObject(one) && typeof one.id === 'string'))
    return resumeValue;
  return Object.fromEntries(resumeValue.map(({ id, value }) => [id, value]));
}
