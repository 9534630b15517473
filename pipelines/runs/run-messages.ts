/**
 * The messages of a run, in the forms that ingest stores: OpenAI, Anthropic and Gemini clients, the AI SDK of Vercel,
 * LangChain, OpenTelemetry, and the state of a graph.
 */
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';
import { endSlice } from '../../infra/timeouts/time-slices.ts';
import { readMessage } from './openai-messages.ts';

/**
 * Returns the messages in the inputs of a run, then those in its outputs. A message with `role` or `content` is returned
 * as it was sent; serialised LangChain messages are converted to the chat format of OpenAI. If the outputs are the state
 * of a graph, which contains the inputs, only the outputs are returned.
 */
export function readRunMessages(inputs: unknown, outputs: unknown): unknown[] {
  const asked = readInputs(inputs);
  const answered = readOutputs(outputs);
  const isState = isJsonObject(outputs) && Array.isArray(outputs.messages);
  const isRepeated = isState && measureOverlaps(answered.map(toKey), asked.map(toKey)).includes(asked.length);
  return isRepeated ? answered : [...asked, ...answered];
}

interface Turn {
  readonly inputs: unknown;
  readonly outputs: unknown;
}

/** Returns the messages of model calls, in order. */
export async function readCallMessages(calls: readonly Turn[]): Promise<unknown[]> {
  const messages: unknown[] = [];
  for (const { inputs, outputs } of calls) {
    for (const message of readRunMessages(inputs, outputs)) messages.push(message);
    await endSlice();
  }
  return messages;
}

/**
 * Returns the messages of the turns of a conversation, in order. A graph with a checkpointer returns the whole state at
 * each turn: messages of earlier turns are not repeated. A message is recognised by its `id`, or as part of a sequence
 * that continues the messages so far.
 */
export async function readThreadMessages(turns: readonly Turn[]): Promise<unknown[]> {
  const messages: unknown[] = [];
  const keys: string[] = [];
  const ids = new Set<unknown>();
  for (const { inputs, outputs } of turns) {
    const ofTurn = readRunMessages(inputs, outputs);
    const keysOfTurn = ofTurn.map(toKey);
    const overlap = measureOverlaps(keys.slice(-ofTurn.length), keysOfTurn).at(-1) ?? 0;
    const added = ofTurn.flatMap((message, at) => {
      const isKnown = at < overlap || (readId(message) !== undefined && ids.has(readId(message)));
      return isKnown ? [] : [{ message, key: keysOfTurn[at] as string }];
    });
    for (const message of ofTurn) if (readId(message) !== undefined) ids.add(readId(message));
    for (const { message, key } of added) {
      messages.push(message);
      keys.push(key);
    }
    await endSlice();
  }
  return messages;
}

/** Identifies the content of a message, independent of the form in which it was sent. */
function toKey(message: unknown): string {
  return JSON.stringify(readMessage(message) ?? message);
}

function readId(message: unknown): string | undefined {
  return isJsonObject(message) && typeof message.id === 'string' ? message.id : undefined;
}

/**
 * For each position in `list`, returns how many of the first items of `start` end there, at most all. The time is linear
 * (Knuth, Morris and Pratt).
 */
function measureOverlaps(list: readonly string[], start: readonly string[]): number[] {
  const all = [...start, undefined, ...list];
  const lengths = [0];
  for (let at = 1; at < all.length; at += 1) {
    let length = lengths[at - 1] as number;
    while (length > 0 && all[at] !== all[length]) length = lengths[length - 1] as number;
    lengths.push(all[at] === all[length] ? length + 1 : length);
  }
  return lengths.slice(start.length + 1);
}

function readInputs(inputs: unknown): unknown[] {
  if (!isJsonObject(inputs)) return [];
  for (const name of ['messages', 'prompts', 'input', 'contents', 'prompt']) {
    const messages = name in inputs ? toMessages(inputs[name], 'user') : [];
    if (messages.length > 0) return messages;
  }
  return [];
}

/** The first of these forms that has a message. */
const outputForms: readonly ((outputs: JsonObject) => unknown)[] = [
  // Chat completions and completions of OpenAI.
  ({ choices }) => readFirst(choices, 'message', 'text'),
  ({ message }) => message,
  // Gemini.
  ({ candidates }) => readFirst(candidates, 'content'),
  // LangChain: a list for each prompt.
  ({ generations }) => readFirst(Array.isArray(generations) ? generations.flat() : [], 'message', 'text'),
  // OpenTelemetry, and the state of a graph.
  ({ messages }) => messages,
  // Responses of OpenAI, and values that the SDK wraps.
  ({ output }) => output,
  // Anthropic, and functions that return a message.
  (outputs) => (hasContent(outputs) || readMessage(outputs) ? outputs : undefined),
  // Texts of the AI SDK of Vercel, and of completions of Anthropic.
  ({ text }) => text,
  ({ completion }) => completion,
];

function readOutputs(outputs: unknown): unknown[] {
  if (!isJsonObject(outputs)) return [];
  for (const form of outputForms) {
    const messages = toMessages(form(outputs), 'assistant');
    if (messages.length > 0) return messages;
  }
  return [];
}

function readFirst(list: unknown, ...names: readonly string[]): unknown {
  const first: unknown = Array.isArray(list) ? list[0] : undefined;
  return isJsonObject(first) ? names.map((name) => first[name]).find((value) => value != null) : undefined;
}

/** Messages of a value: a message, a text, or a list of them, which may be nested. */
function toMessages(value: unknown, role: 'user' | 'assistant'): unknown[] {
  if (value === null || value === undefined || value === '') return [];
  if (typeof value === 'string') return [{ role, content: value }];
  if (Array.isArray(value)) {
    const pair = readPair(value);
    return pair ? [pair] : value.flatMap((each) => toMessages(each, role));
  }
  if (!isJsonObject(value)) return [];
  return [hasContent(value) ? value : (readMessage(value) ?? value)];
}

/** LangChain also accepts a message as a pair of role and text. */
function readPair([role, content, ...rest]: readonly unknown[]): object | undefined {
  if (rest.length > 0 || typeof role !== 'string' || typeof content !== 'string') return undefined;
  return (
    readMessage({ type: role, content }) ?? (role === 'user' || role === 'assistant' ? { role, content } : undefined)
  );
}

function hasContent(value: JsonObject): boolean {
  return 'content' in value || typeof value.role === 'string';
}
