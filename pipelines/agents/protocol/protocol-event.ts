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

/** Modes whose data the protocol has as it is. */
const asItIs = new Set(['values', 'tasks']);
const converted = new Set(['updates', 'custom', 'tools']);

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
  if (isEnd) return lifecycle(endOf(read(event) as RunEnd));
  if (mode === 'metadata' && namespace === '') return lifecycle({ event: 'running' });
  const text = () => Buffer.from(event.data).toString('utf8');
  // It is an object with `data` and maybe `node`.
  if (mode === protocolMode) return { method: event.event, rest: text().slice(1) };
  if (asItIs.has(mode)) return { method: mode, rest: `"data":${text()}}` };
  if (converted.has(mode)) return convertedOf(mode, read(event));
  if (mode === 'checkpoints') return checkpointOf(read(event));
  return undefined;
}

function convertedOf(mode: string, payload: unknown): Told | undefined {
  const [made] = convertToProtocolEvent({ namespace: [], mode: mode as 'updates', payload, seq: 0 });
  if (made === undefined) return undefined;
  const { node, data } = made.params as { readonly node?: string; readonly data: { readonly name?: unknown } };
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

function lifecycle(data: { readonly event: string; readonly error?: string }): Told {
  return { method: 'lifecycle', rest: `"data":${JSON.stringify({ ...data, graph_name: 'root' })}}` };
}

/** The status of the run is the last word on it. One that was cancelled has the status `interrupted`, as clients expect. */
function endOf({ status, interrupted, error }: RunEnd): { readonly event: string; readonly error?: string } {
  if (status === 'interrupted' || interrupted) return { event: 'interrupted' };
  if (status === 'success') return { event: 'completed' };
  return { event: 'failed', error: error === undefined ? status : `${error.error}: ${error.message}` };
}

function read(event: StreamedEvent): unknown {
  return JSON.parse(Buffer.from(event.data).toString('utf8'));
}

/** The number in a thread behind which the start `start` of a run on it begins. */
export function beforeStart(start: number): number {
  return (start - 1) * (endSeq + 1) + endSeq;
}
