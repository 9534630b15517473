import { formatExact, isJsonObject } from '../../components/values/exact-json.ts';

/**
 * A graph run as its stream shows it: the state, tokens of messages that are not in the state yet, updates of nodes, and
 * the error.
 */
export interface RunView {
  readonly phase: 'idle' | 'running' | 'reconnecting' | 'ended';
  readonly threadId?: string | undefined;
  readonly runId?: string | undefined;
  /** The last state that arrived. */
  readonly values?: unknown;
  /** Messages of which only a part has arrived, by id. */
  readonly partial: ReadonlyMap<string, PartialMessage>;
  readonly steps: readonly Step[];
  readonly error?: string | undefined;
}

/** What a node wrote: an update of the state, or a custom event. */
export interface Step {
  /** Counts from 0 in the run. */
  readonly place: number;
  readonly name: string;
  readonly value: unknown;
}

interface PartialMessage {
  readonly id: string;
  readonly type: string;
  readonly name?: string | undefined;
  readonly content: string;
  readonly tool_calls: readonly { readonly name: string; readonly args?: string }[];
}

export const idleRun: RunView = { phase: 'idle', partial: new Map(), steps: [] };
/** Older steps are dropped from the view. */
const maxSteps = 500;

/** Returns the view after an event of the stream. Events of modes that were not requested change nothing. */
export function applyEvent(view: RunView, name: string, data: unknown): RunView {
  const [event] = name.split('|');
  if (event === 'metadata' && isJsonObject(data)) return { ...view, runId: String(data.run_id) };
  if (event === 'values') return applyValues(view, data);
  if (event === 'messages' && Array.isArray(data)) return applyMessage(view, data[0]);
  if (event === 'custom') return addSteps(view, [{ name: 'custom', value: data }]);
  if (event === 'updates' && isJsonObject(data))
    return addSteps(
      view,
      Object.entries(data)
        .filter(([node]) => node !== '__interrupt__')
        .map(([node, value]) => ({ name: node, value })),
    );
  if (event === 'error') return { ...view, error: describeError(data) };
  return view;
}

function addSteps(view: RunView, steps: readonly Omit<Step, 'place'>[]): RunView {
  const first = (view.steps.at(-1)?.place ?? -1) + 1;
  const added = steps.map((step, index) => ({ ...step, place: first + index }));
  return { ...view, steps: [...view.steps, ...added].slice(-maxSteps) };
}

function applyValues(view: RunView, data: unknown): RunView {
  if (!isJsonObject(data)) return { ...view, values: data };
  const { __interrupt__: _shownWithTheState, ...values } = data;
  const partial = new Map(view.partial);
  if (Array.isArray(values.messages))
    for (const message of values.messages) if (isJsonObject(message)) partial.delete(String(message.id));
  return { ...view, values: Object.keys(values).length === 0 ? view.values : values, partial };
}

function applyMessage(view: RunView, chunk: unknown): RunView {
  if (!isJsonObject(chunk) || typeof chunk.id !== 'string') return view;
  const { id, type, name, content, tool_calls: calls, tool_call_chunks: chunks } = chunk;
  const former = view.partial.get(id);
  // Messages of nodes that do not stream, and tool messages, also arrive in the state.
  if (former === undefined && isInState(view.values, id)) return view;
  const isPart = Array.isArray(chunks) || type === 'AIMessageChunk';
  const partial = new Map(view.partial);
  partial.set(id, {
    id,
    type: String(type).replace(/^AIMessageChunk$/, 'ai'),
    name: typeof name === 'string' ? name : undefined,
    content: (isPart ? (former?.content ?? '') : '') + toText(content),
    tool_calls: isPart ? mergeCalls(former?.tool_calls ?? [], chunks) : listCalls(calls),
  });
  return { ...view, partial };
}

function isInState(values: unknown, id: string): boolean {
  const { messages } = isJsonObject(values) ? values : {};
  return Array.isArray(messages) && messages.some((message) => isJsonObject(message) && message.id === id);
}

function toText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part) => (isJsonObject(part) && typeof part.text === 'string' ? part.text : '')).join('');
}

type Calls = PartialMessage['tool_calls'];

/** Chunks of a tool call have the same index. The first chunk has the name, each chunk a part of the arguments. */
function mergeCalls(former: Calls, chunks: unknown): Calls {
  const merged = [...former];
  for (const chunk of Array.isArray(chunks) ? chunks.filter(isJsonObject) : []) {
    const at = typeof chunk.index === 'number' ? chunk.index : merged.length;
    const { name = '', args = '' } = merged[at] ?? {};
    merged[at] = { name: name + String(chunk.name ?? ''), args: args + String(chunk.args ?? '') };
  }
  return merged.filter((call) => call !== undefined);
}

function listCalls(calls: unknown): Calls {
  return (Array.isArray(calls) ? calls : []).filter(isJsonObject).map(({ name, args }) => ({
    name: String(name),
    ...(args === undefined ? {} : { args: formatExact(args, 0) }),
  }));
}

/** Returns the state with the messages of which only a part has arrived appended to its messages. */
export function withPartialMessages({ values, partial }: RunView, stored: unknown): unknown {
  const state = values ?? stored;
  if (partial.size === 0) return state;
  const fields = isJsonObject(state) ? state : {};
  const messages = Array.isArray(fields.messages) ? fields.messages : [];
  return { ...fields, messages: [...messages, ...partial.values()] };
}

function describeError(data: unknown): string {
  if (!isJsonObject(data)) return String(data);
  const { error, message } = data;
  const parts = [error, message].filter((part) => typeof part === 'string' && part !== '');
  return parts.length > 0 ? parts.join(': ') : formatExact(data, 0);
}
