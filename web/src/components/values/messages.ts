import { isJsonObject, type JsonObject, parseExact } from './exact-json.ts';

/**
 * Finds the messages of a conversation in inputs and outputs: OpenAI chat completions, LangChain messages (as objects
 * and as serialised constructors), and lists of generations.
 */
export interface Message {
  readonly role: string;
  readonly name?: string | undefined;
  readonly parts: readonly MessagePart[];
  readonly toolCalls: readonly ToolCall[];
}
export type MessagePart =
  | { readonly kind: 'text'; readonly text: string }
  /** An image in a `data:` URL; images of other hosts are not fetched. */
  | { readonly kind: 'image'; readonly url: string }
  | { readonly kind: 'other'; readonly value: unknown };
export interface ToolCall {
  readonly name: string;
  readonly arguments: unknown;
}

/** Returns the messages of inputs or outputs; undefined if the value is no conversation. */
export function findMessages(value: unknown): readonly Message[] | undefined {
  if (!isJsonObject(value)) return readList(value);
  const { messages, message, choices, generations, output, input } = value;
  const candidates = [
    messages,
    message === undefined ? undefined : [message],
    Array.isArray(choices) ? choices.map((choice) => (isJsonObject(choice) ? choice.message : undefined)) : undefined,
    Array.isArray(generations)
      ? generations.flat().map((item) => (isJsonObject(item) ? item.message : undefined))
      : undefined,
    [value],
    output,
    isJsonObject(output) ? [output] : undefined,
    input,
  ];
  for (const candidate of candidates) {
    const found = readList(candidate);
    if (found) return found;
  }
  return undefined;
}

function readList(value: unknown): readonly Message[] | undefined {
  if (!Array.isArray(value) || value.length === 0) return undefined;
  // A batch of one conversation is a list in a list.
  const list: readonly unknown[] = value.length === 1 && Array.isArray(value[0]) ? value[0] : value;
  const messages = list.map(readMessage);
  return messages.length > 0 && messages.every((message) => message !== undefined) ? messages : undefined;
}

/** Roles of LangChain's types of messages. A map, because clients also send names such as `constructor`. */
const roles: ReadonlyMap<string, string> = new Map([
  ['human', 'user'],
  ['ai', 'assistant'],
  ['HumanMessage', 'user'],
  ['AIMessage', 'assistant'],
  ['AIMessageChunk', 'assistant'],
  ['SystemMessage', 'system'],
  ['ToolMessage', 'tool'],
  ['FunctionMessage', 'tool'],
  ['ChatMessage', 'user'],
]);

function readMessage(value: unknown): Message | undefined {
  if (Array.isArray(value) && value.length === 2 && typeof value[0] === 'string' && typeof value[1] === 'string')
    return { role: roles.get(value[0]) ?? value[0], parts: readParts(value[1]), toolCalls: [] };
  if (!isJsonObject(value)) return undefined;
  const { id, kwargs, lc } = value;
  if (lc !== undefined && Array.isArray(id) && isJsonObject(kwargs))
    return readMessage({ ...kwargs, role: roles.get(String(id.at(-1))) ?? String(id.at(-1)) });
  const { role, type, data, content, name } = value;
  if (role === undefined && typeof type === 'string' && isJsonObject(data)) return readMessage({ ...data, role: type });
  const sender = typeof role === 'string' ? role : typeof type === 'string' ? type : undefined;
  if (sender === undefined || !('content' in value || 'tool_calls' in value)) return undefined;
  return {
    role: roles.get(sender) ?? sender,
    name: typeof name === 'string' ? name : undefined,
    parts: readParts(content),
    toolCalls: readToolCalls(value),
  };
}

function readParts(content: unknown): readonly MessagePart[] {
  if (content === null || content === undefined || content === '') return [];
  if (typeof content === 'string') return [{ kind: 'text', text: content }];
  if (!Array.isArray(content)) return [{ kind: 'other', value: content }];
  return content.flatMap((part): MessagePart[] => {
    if (typeof part === 'string') return [{ kind: 'text', text: part }];
    if (!isJsonObject(part)) return [{ kind: 'other', value: part }];
    // Calls of tools are shown as such.
    if (part.type === 'tool_use') return [];
    if (typeof part.text === 'string') return [{ kind: 'text', text: part.text }];
    const url = isJsonObject(part.image_url) ? part.image_url.url : part.image_url;
    if (typeof url === 'string' && /^data:image\/(png|jpeg|gif|webp);base64,/.test(url))
      return [{ kind: 'image', url }];
    return [{ kind: 'other', value: part }];
  });
}

function readToolCalls(message: JsonObject): readonly ToolCall[] {
  const { tool_calls: calls, additional_kwargs: more, content } = message;
  const blocks = Array.isArray(content) ? content.filter((part) => isJsonObject(part) && part.type === 'tool_use') : [];
  const listed = Array.isArray(calls)
    ? calls
    : isJsonObject(more) && Array.isArray(more.tool_calls)
      ? more.tool_calls
      : [];
  return (listed.length > 0 ? listed : blocks).filter(isJsonObject).map((each) => {
    const called = isJsonObject(each.function) ? each.function : each;
    return {
      name: String(called.name ?? 'tool'),
      arguments: parseArguments(called.arguments ?? called.args ?? called.input),
    };
  });
}

function parseArguments(value: unknown): unknown {
  if (typeof value !== 'string') return value;
  try {
    return parseExact(value);
  } catch {
    return value;
  }
}

/** Returns the text of the last message, or the only text, of inputs or outputs as JSON; otherwise the JSON. */
export function summarizePreview(json: string): string {
  const value = parseArguments(json);
  // The API truncates long previews, which are then not valid JSON. Use their last text.
  if (typeof value === 'string')
    return parseCutText([...json.matchAll(/"(?:content|text)":"((?:[^"\\]|\\.)+)/g)].at(-1)?.[1]) ?? json;
  if (typeof value !== 'object' || value === null) return json;
  const last = findMessages(value)?.at(-1);
  if (last) {
    const text = last.parts.map((part) => (part.kind === 'text' ? part.text : `[${part.kind}]`)).join(' ');
    return text || last.toolCalls.map(({ name }) => `${name}(…)`).join(' ') || json;
  }
  const values = Object.values(value);
  return values.length === 1 && typeof values[0] === 'string' ? values[0] : json;
}

function parseCutText(text: string | undefined): string | undefined {
  const value = text === undefined ? undefined : parseArguments(`"${text}"`);
  return typeof value === 'string' ? value : undefined;
}
