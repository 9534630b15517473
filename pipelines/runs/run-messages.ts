/**
 * The messages of a run, in the forms that ingest stores: OpenAI and Anthropic clients, LangChain, OpenTelemetry, and the
 * state of a graph.
 */
import { isObject, type Json, readMessage } from './openai-messages.ts';

/**
 * Returns the messages in the inputs of a run, then those in its outputs. A message with `role` or `content` is returned
 * as it was sent; serialised LangChain messages are converted to the chat format of OpenAI. If the outputs repeat the
 * inputs, as the state of a graph does, the repeated messages are omitted.
 */
export function readRunMessages(inputs: unknown, outputs: unknown): unknown[] {
  const asked = readInputs(inputs);
  const answered = readOutputs(outputs);
  const repeats = asked.length > 0 && asked.every((message, at) => haveSameContent(message, answered[at]));
  return [...asked, ...(repeats ? answered.slice(asked.length) : answered)];
}

function readInputs(inputs: unknown): unknown[] {
  if (!isObject(inputs)) return [];
  for (const name of ['messages', 'prompts', 'input'] as const) {
    const messages = name in inputs ? toMessages(inputs[name], 'user') : [];
    if (messages.length > 0) return messages;
  }
  return [];
}

/** The first of these forms that has a message. */
const outputForms: readonly ((outputs: Json) => unknown)[] = [
  // Chat completions of OpenAI.
  ({ choices }) => readFirst(choices, 'message'),
  ({ message }) => message,
  // LangChain: a list for each prompt.
  ({ generations }) => readFirst(Array.isArray(generations) ? generations.flat() : [], 'message', 'text'),
  // OpenTelemetry, and the state of a graph.
  ({ messages }) => messages,
  // Responses of OpenAI, and values that the SDK wraps.
  ({ output }) => output,
  // Anthropic, and functions that return a message.
  (outputs) => (hasContent(outputs) || readMessage(outputs) ? outputs : undefined),
];

function readOutputs(outputs: unknown): unknown[] {
  if (!isObject(outputs)) return [];
  for (const form of outputForms) {
    const messages = toMessages(form(outputs), 'assistant');
    if (messages.length > 0) return messages;
  }
  return [];
}

function readFirst(list: unknown, ...names: readonly string[]): unknown {
  const first: unknown = Array.isArray(list) ? list[0] : undefined;
  return isObject(first) ? names.map((name) => first[name]).find((value) => value != null) : undefined;
}

/** Messages of a value: a message, a text, or a list of them, which may be nested. */
function toMessages(value: unknown, role: 'user' | 'assistant'): unknown[] {
  if (value === null || value === undefined || value === '') return [];
  if (typeof value === 'string') return [{ role, content: value }];
  if (Array.isArray(value)) {
    const pair = readPair(value);
    return pair ? [pair] : value.flatMap((each) => toMessages(each, role));
  }
  if (!isObject(value)) return [];
  return [hasContent(value) ? value : (readMessage(value) ?? value)];
}

/** LangChain also accepts a message as a pair of role and text. */
function readPair([role, content, ...rest]: readonly unknown[]): object | undefined {
  if (rest.length > 0 || typeof role !== 'string' || typeof content !== 'string') return undefined;
  return (
    readMessage({ type: role, content }) ?? (role === 'user' || role === 'assistant' ? { role, content } : undefined)
  );
}

function hasContent(value: Json): boolean {
  return 'content' in value || typeof value.role === 'string';
}

function haveSameContent(one: unknown, other: unknown): boolean {
  if (!isObject(one) || !isObject(other)) return false;
  return (
    JSON.stringify([one.role ?? one.type, one.content]) === JSON.stringify([other.role ?? other.type, other.content])
  );
}
