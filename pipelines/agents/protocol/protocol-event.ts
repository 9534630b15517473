import { convertToProtocolEvent, isCheckpointEnvelope, matchesSubscription } from '@langchain/langgraph/stream';
import { endSeq } from '../streams/stream-numbers.ts';
import type { RunEnd, StreamedEvent } from '../streams/stream-ports.ts';
import { protocolMode } from './protocol-mode.ts';

/** What a reader wants to see. Source: `@langchain/protocol` 0.0.13, EventStreamRequest. */
export interface EventFilter {
  readonly channels: readonly string[];
  /** Beginnings of namespaces; a part without a colon also fits one that has an id behind it. Default: all. */
  readonly namespaces?: readonly (readonly string[])[] | undefined;
  /** How far below those. Default: any. */
  readonly depth?: number | undefined;
}

interface Told {
  readonly method: string;
  /** JSON text of the event's params from `data` on. */
  readonly rest: string;
  readonly name?: string;
}

/** A message of the protocol as it goes out. */
export interface ProtocolMessage {
  /** Of the event; the same whenever it is read again. */
  readonly id: string;
  readonly method: string;
  /** JSON text. */
  readonly text: string;
}

const converted = new Set(['updates', 'custom', 'tools']);
/** Key of the library for questions in values and updates, which the protocol has as events of their own. */
const interruptKey = '__interrupt__';

/** An event of a thread as the protocol tells it, whichever way its run was started; undefined where `filter` leaves it out or the protocol has nothing for it. */
export function protocolMessage(event: StreamedEvent, filter: EventFilter): ProtocolMessage | undefined {
  const told = toldOf(event);
  if (told === undefined) return undefined;
  const { method, rest, name } = told;
  const namespace = event.namespace === '' ? [] : event.namespace.split('|');
  const matchable = { method, params: { namespace, data: { ...(name !== undefined && { name }) } } };
  const wanted = { ...filter, channels: [...filter.channels], namespaces: filter.namespaces?.map((each) => [...each]) };
  if (!matchesSubscription(matchable as never, wanted as never)) return undefined;
  const id = String(event.threadSeq);
  const timestamp = Math.floor(event.createdAtMicros / 1_000);
  const params = `{"namespace":${JSON.stringify(namespace)},"timestamp":${timestamp},${rest}`;
  const text = `{"type":"event","event_id":"${id}","seq":${id},"method":${JSON.stringify(method)},"params":${params}}`;
  return { id, method, text };
}

function toldOf(event: StreamedEvent): Told | undefined {
  const { mode, isEnd, namespace } = event;
  if (isEnd) {
    const end = read(event) as RunEnd;
    return lifecycle({ ...endOf(end), graph_name: end.graph_id });
  }
  if (mode === 'metadata' && namespace === '') {
    const { graph_id } = read(event) as { readonly graph_id?: string };
    return lifecycle({ event: 'running', graph_name: graph_id });
  }
  const text = () => Buffer.from(event.data).toString('utf8');
  // It is an object with `data` and maybe `node`.
  if (mode === protocolMode) return { method: event.event, rest: text().slice(1) };
  if (mode === 'values') return valuesOf(text());
  if (mode === 'tasks') return { method: mode, rest: `"data":${text()}}` };
  if (converted.has(mode)) return convertedOf(mode, read(event));
  if (mode === 'checkpoints') return checkpointOf(read(event));
  return undefined;
}

/** Values without the questions that the library puts beside them; undefined if nothing else is there. */
function valuesOf(text: string): Told | undefined {
  if (!text.includes(interruptKey)) return { method: 'values', rest: `"data":${text}}` };
  const values: unknown = JSON.parse(text);
  if (typeof values !== 'object' || values === null || !(interruptKey in values)) {
    return { method: 'values', rest: `"data":${text}}` };
  }
  const { [interruptKey]: _, ...data } = values;
  return Object.keys(data).length === 0 ? undefined : { method: 'values', rest: JSON.stringify({ data }).slice(1) };
}

function convertedOf(mode: string, payload: unknown): Told | undefined {
  const [made] = convertToProtocolEvent({ namespace: [], mode: mode as 'updates', payload, seq: 0 });
  if (made === undefined) return undefined;
  const { node, data } = made.params as { readonly node?: string; readonly data: { readonly name?: unknown } };
  if (mode === 'updates') {
    if (node === interruptKey) return undefined;
    const { values } = data as { readonly values?: unknown };
    return { method: mode, rest: JSON.stringify({ ...(node !== undefined && { node }), data: values }).slice(1) };
  }
  const rest = `${JSON.stringify({ ...(node !== undefined && { node }), data }).slice(1)}`;
  return { method: mode, rest, ...(mode === 'custom' && typeof data.name === 'string' && { name: data.name }) };
}

/** Of a run that was not started through the protocol, whose checkpoints are told in full. */
function checkpointOf(payload: unknown): Told | undefined {
  const { checkpoint, parent_checkpoint, metadata } = (payload ?? {}) as {
    readonly checkpoint?: { readonly checkpoint_id?: string } | null;
    readonly parent_checkpoint?: { readonly checkpoint_id?: string } | null;
    readonly metadata?: { readonly step?: number; readonly source?: string };
  };
  const parent = parent_checkpoint?.checkpoint_id;
  const data = {
    id: checkpoint?.checkpoint_id,
    ...(parent !== undefined && { parent_id: parent }),
    step: metadata?.step,
    source: metadata?.source,
  };
  return isCheckpointEnvelope(data) ? { method: 'checkpoints', rest: JSON.stringify({ data }).slice(1) } : undefined;
}

function lifecycle(data: {
  readonly event: string;
  readonly graph_name: string | undefined;
  readonly error?: string;
}): Told {
  return { method: 'lifecycle', rest: `"data":${JSON.stringify(data)}}` };
}

/**
 * How a run ended. `interrupted` says that the graph waits for an answer, and nothing else: the Python SDK ends its iterators at a
 * question, at `completed` and at `failed`. So a run that was cancelled, or that stopped at a breakpoint, is `completed`.
 */
function endOf({ status, interrupted, interrupts, error }: RunEnd): {
  readonly event: string;
  readonly error?: string;
} {
  // Interrupts that are too large for the end of a run are left out of it.
  const hasQuestion = interrupts === undefined || Object.values(interrupts).some((list) => list.length > 0);
  if (interrupted && hasQuestion) return { event: 'interrupted' };
  if (status === 'success' || status === 'interrupted') return { event: 'completed' };
  return { event: 'failed', error: error === undefined ? status : `${error.error}: ${error.message}` };
}

function read(event: StreamedEvent): unknown {
  return JSON.parse(Buffer.from(event.data).toString('utf8'));
}

/** The number in a thread behind which the start `start` of a run on it begins. */
export function beforeStart(start: number): number {
  return (start - 1) * (endSeq + 1) + endSeq;
}
