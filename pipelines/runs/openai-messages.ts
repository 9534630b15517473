/** Converts the inputs and outputs of runs and examples to messages of the OpenAI chat format. */
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';

export interface OpenAiMessage extends JsonObject {
  readonly role: string;
  readonly content: unknown;
}

/** OpenAI roles by LangChain message type. */
const roles: ReadonlyMap<string, string> = new Map(
  Object.entries({
    human: 'user',
    humanmessage: 'user',
    ai: 'assistant',
    aimessage: 'assistant',
    system: 'system',
    systemmessage: 'system',
    tool: 'tool',
    toolmessage: 'tool',
    function: 'function',
    functionmessage: 'function',
  }),
);

/** Members of OpenAI messages that are kept, besides role and content. */
const keptMembers = ['name', 'tool_calls', 'tool_call_id', 'function_call', 'refusal'] as const;

/**
 * Returns the messages in the inputs or outputs of a run or an example. A message may have the form of OpenAI, of
 * LangChain (`type` and `content` or `data`), or of LangChain's serialised objects (`id` and `kwargs`). A document
 * without messages becomes one message with the role `role`; its content is the only value of the document, or the
 * document as JSON.
 */
export function toOpenAiMessages(document: JsonObject, role: 'user' | 'assistant'): OpenAiMessage[] {
  for (const value of Object.values(document)) {
    const list = Array.isArray(value) ? value.flat() : [value];
    const messages = list.map(readMessage);
    if (messages.length > 0 && messages.every((message) => message !== undefined)) return messages;
  }
  const values = Object.values(document);
  return [{ role, content: toText(values.length === 1 ? values[0] : document) }];
}

export function toText(value: unknown): string {
  return typeof value === 'string' ? value : stringify(value);
}

/** Returns JSON, or `…` for a value that is nested too deep for `JSON.stringify`: ingest accepts 5,000 levels. */
function stringify(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return '…';
    throw error;
  }
}

/** Returns a message in one of the forms of {@link toOpenAiMessages}; undefined if `value` is none. */
export function readMessage(value: unknown): OpenAiMessage | undefined {
  if (!isJsonObject(value)) return undefined;
  if (typeof value.role === 'string' && 'content' in value) {
    return buildMessage(value, roles.get(value.role.toLowerCase()) ?? value.role);
  }
  const classPath = Array.isArray(value.id) ? value.id : [];
  const type = value.type === 'constructor' ? classPath.at(-1) : value.type;
  const role = typeof type === 'string' ? roles.get(type.replace(/Chunk$/, '').toLowerCase()) : undefined;
  const content = [value.data, value.kwargs, value].find((each) => isJsonObject(each) && 'content' in each);
  return role === undefined || !isJsonObject(content) ? undefined : buildMessage(content, role);
}

function buildMessage(message: JsonObject, role: string): OpenAiMessage {
  const more = isJsonObject(message.additional_kwargs) ? message.additional_kwargs : {};
  const kept = keptMembers.flatMap((name) => {
    const value = message[name] ?? more[name];
    return value === undefined || value === null || isEmpty(value) ? [] : [[name, convertToolCalls(name, value)]];
  });
  return { role, content: message.content, ...Object.fromEntries(kept) };
}

/**
 * Converts tool calls to those of OpenAI. Tool calls of LangChain have `args` as an object; tool calls of OpenAI have
 * `function.arguments` as text.
 */
function convertToolCalls(name: string, value: unknown): unknown {
  if (name !== 'tool_calls' || !Array.isArray(value)) return value;
  return value.map((call: unknown) =>
    isJsonObject(call) && 'args' in call
      ? { id: call.id, type: 'function', function: { name: call.name, arguments: stringify(call.args) } }
      : call,
  );
}

const isEmpty = (value: unknown) => Array.isArray(value) && value.length === 0;
