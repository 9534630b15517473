import { convertToProtocolEvent, isCheckpointEnvelope, matchesSubscription } from '@langchain/langgraph/stream';
import type { Sql } from '../../../infra/postgres/database.ts';
import {
  answerEvent,
  endSeq,
  interruptEvent,
  protocolMode,
  type RunEnd,
  type StreamedEvent,
  toThreadSeq,
  toThreadStart,
  warningMode,
} from '../streams/stream-types.ts';

/** Filter of a subscription. Source: `@langchain/protocol` 0.0.13, EventStreamRequest. */
export interface EventFilter {
  readonly channels: readonly string[];
  /**
   * Namespace prefixes. A segment without a colon also matches a segment with the same name and an id. Default: all.
   */
  readonly namespaces?: readonly (readonly string[])[] | undefined;
  /** Maximum depth below the prefixes. Default: unlimited. */
  readonly depth?: number | undefined;
}

interface MessageContent {
  /** JSON text of the event's params from `data` (or `node`) on. */
  readonly rest: string;
  /** Name of a custom event. */
  readonly name?: string;
}

/** An encoded message of the protocol. */
export interface ProtocolMessage {
  /** Event id, which is the same in every read. */
  readonly id: string;
  readonly method: string;
  /** The message as JSON text. */
  readonly text: string;
}

const libraryModes = new Set(['updates', 'custom', 'tools']);
/** Modes whose events become messages with the mode as method. */
const messageModes = new Set([...libraryModes, 'values', 'tasks', 'checkpoints']);
/** LangGraph's key for interrupts in values and updates. The protocol has separate events for interrupts. */
const interruptKey = '__interrupt__';

/**
 * Converts an event of a thread to a message of the protocol, also for runs that were not started through the protocol.
 * Returns undefined if all `filters` exclude the event or the protocol has no equivalent. Decodes the data only if a
 * filter may include the event, because the data can be several megabytes.
 *
 * A warning is a custom event with the name `warning`, because the protocol has no other event for it. No filter excludes
 * it, because it may say that an event is missing that the filter includes.
 */
export function toProtocolMessage(event: StreamedEvent, filters: Iterable<EventFilter>): ProtocolMessage | undefined {
  const method = findMethod(event);
  if (method === undefined) return undefined;
  const namespace = event.namespace === '' ? [] : event.namespace.split('|');
  const matches = (filter: EventFilter, name?: string) => {
    if (event.mode === warningMode) return true;
    // The library does not know all events of the channel `input`.
    const known = method === answerEvent ? interruptEvent : method;
    const matchableEvent = { method: known, params: { namespace, data: { ...(name !== undefined && { name }) } } };
    return matchesSubscription(matchableEvent as never, filter as never);
  };
  // The name of a custom event is in its data.
  const candidates = [...filters].filter((filter) => matches({ ...filter, channels: filter.channels.map(removeName) }));
  if (candidates.length === 0) return undefined;
  const content = convertEvent(event);
  if (content === undefined || !candidates.some((filter) => matches(filter, content.name))) return undefined;
  const seq = event.threadSeq;
  // The SDKs from 1.13 on take the id of the run from event ids of this form, which the reference server uses.
  const id = method === 'lifecycle' && event.namespace === '' ? `synth:${event.runId}:${seq}` : String(seq);
  const timestamp = Math.floor(event.createdAtMicros / 1_000);
  const params = `{"namespace":${JSON.stringify(namespace)},"timestamp":${timestamp},${content.rest}`;
  const text = `{"type":"event","event_id":"${id}","seq":${seq},"method":${JSON.stringify(method)},"params":${params}}`;
  return { id, method, text };
}

/** Returns the channel of `custom:NAME` without the name. */
function removeName(channel: string): string {
  return channel.startsWith('custom:') ? 'custom' : channel;
}

/** Returns the method of the message for an event; undefined if the protocol has no equivalent. */
function findMethod({ mode, event, isEnd, namespace }: StreamedEvent): string | undefined {
  if (isEnd || (mode === 'metadata' && namespace === '')) return 'lifecycle';
  if (mode === protocolMode) return event;
  if (mode === warningMode) return 'custom';
  return messageModes.has(mode) ? mode : undefined;
}

function convertEvent(event: StreamedEvent): MessageContent | undefined {
  const { mode, isEnd } = event;
  if (isEnd) {
    const end = parseData(event) as RunEnd;
    return createLifecycleContent({ ...convertEnd(end), graph_name: end.graph_id });
  }
  if (mode === 'metadata') {
    const { graph_id } = parseData(event) as { readonly graph_id?: string };
    return createLifecycleContent({ event: 'running', graph_name: graph_id });
  }
  const text = () => Buffer.from(event.data).toString('utf8');
  // The data is an object with `data` and optionally `node`.
  if (mode === protocolMode) return { rest: text().slice(1) };
  if (mode === warningMode) return { rest: `"data":{"name":"warning","payload":${text()}}}` };
  if (mode === 'values') return convertValues(text());
  if (mode === 'tasks') return { rest: `"data":${text()}}` };
  if (libraryModes.has(mode)) return convertWithLibrary(mode, parseData(event));
  return convertCheckpoint(parseData(event));
}

/** Removes the interrupts that LangGraph adds to the values. Returns undefined if the values contain nothing else. */
function convertValues(text: string): MessageContent | undefined {
  if (!text.includes(interruptKey)) return { rest: `"data":${text}}` };
  const values: unknown = JSON.parse(text);
  if (typeof values !== 'object' || values === null || !(interruptKey in values)) {
    return { rest: `"data":${text}}` };
  }
  const { [interruptKey]: _, ...data } = values;
  return Object.keys(data).length === 0 ? undefined : { rest: JSON.stringify({ data }).slice(1) };
}

function convertWithLibrary(mode: string, payload: unknown): MessageContent | undefined {
  const [made] = convertToProtocolEvent({ namespace: [], mode: mode as 'updates', payload, seq: 0 });
  if (made === undefined) return undefined;
  const { node, data } = made.params as { readonly node?: string; readonly data: { readonly name?: unknown } };
  if (mode === 'updates') {
    if (node === interruptKey) return undefined;
    const { values } = data as { readonly values?: unknown };
    return { rest: JSON.stringify({ ...(node !== undefined && { node }), data: values }).slice(1) };
  }
  const rest = `${JSON.stringify({ ...(node !== undefined && { node }), data }).slice(1)}`;
  return { rest, ...(mode === 'custom' && typeof data.name === 'string' && { name: data.name }) };
}

/**
 * Converts a checkpoint event of a run that was not started through the protocol. Such an event contains the full
 * checkpoint.
 */
function convertCheckpoint(payload: unknown): MessageContent | undefined {
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
  return isCheckpointEnvelope(data) ? { rest: JSON.stringify({ data }).slice(1) } : undefined;
}

function createLifecycleContent(data: {
  readonly event: string;
  readonly graph_name: string | undefined;
  readonly error?: string;
}): MessageContent {
  return { rest: `"data":${JSON.stringify(data)}}` };
}

/**
 * Converts the end of a run to a lifecycle event. The event is `interrupted` only if the graph waits for a resume
 * value; a run that was cancelled or stopped at a breakpoint is `completed`. The reason is that the Python SDK ends its
 * iterators at an interrupt, at `completed` and at `failed`.
 */
function convertEnd({ status, interrupted, interrupts, error }: RunEnd): {
  readonly event: string;
  readonly error?: string;
} {
  // The end event omits large interrupts, so undefined means that there may be interrupts.
  const hasInterrupt = interrupts === undefined || Object.values(interrupts).some((list) => list.length > 0);
  if (interrupted && hasInterrupt) return { event: 'interrupted' };
  if (status === 'success' || status === 'interrupted') return { event: 'completed' };
  return { event: 'failed', error: error === undefined ? status : `${error.error}: ${error.message}` };
}

function parseData(event: StreamedEvent): unknown {
  return JSON.parse(Buffer.from(event.data).toString('utf8'));
}

/** Where a reader without a position starts. */
interface ReplayPosition {
  readonly threadSeq: number;
  /** Number of the replayed start, if its run has ended. */
  readonly endedStart: number | undefined;
}

/** Returns the thread sequence number directly before the first event of the given start. */
function getPositionBeforeStart(start: number): number {
  return toThreadSeq(start - 1, endSeq);
}

/**
 * Returns the position in a thread at which a reader without a position starts: the start of the running run, else of
 * the next pending run, else of the last run. Excludes earlier runs, because their result is the state of the thread
 * and clients would mistake their ends for the end of the active run.
 */
export async function findReplayPosition(
  database: Sql,
  deploymentId: string,
  threadId: string,
): Promise<ReplayPosition> {
  const [row] = await database.query<{
    starts: number;
    earlier: number;
    last: number | null;
    running: number | null;
    waiting: boolean;
  }>(
    // A thread that does not exist yet begins after the starts of a deleted one.
    `SELECT coalesce(thread.starts, 0) AS starts, coalesce(thread.earlier_starts, deleted.starts, 0) AS earlier,
       -- State updates outside runs also count as starts, but readers of runs do not see them.
       (SELECT max(thread_start) FROM agents.runs run
        WHERE run.deployment_id = $1 AND run.thread_id = $2) AS last,
       (SELECT min(thread_start) FROM agents.runs run
        WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.status = 'running') AS running,
       EXISTS (SELECT FROM agents.runs run
        WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.status = 'pending') AS waiting
     FROM (VALUES (1)) AS one
     LEFT JOIN agents.threads thread ON thread.deployment_id = $1 AND thread.thread_id = $2
     LEFT JOIN agents.deleted_threads deleted ON deleted.deployment_id = $1 AND deleted.thread_id = $2`,
    [deploymentId, threadId],
    { name: 'agents_replay_place' },
  );
  const { starts, earlier, last, running, waiting } = row!;
  const start = running ?? (waiting ? starts + 1 : Math.max(earlier + 1, last ?? starts));
  const hasEnded = running === null && !waiting;
  return { threadSeq: getPositionBeforeStart(start), endedStart: hasEnded ? start : undefined };
}

/**
 * Returns true for an event that lists the interrupts which the replayed, ended run answered. Clients would hide those that
 * are open again, for example because the run was cancelled.
 */
export function isStaleAnswer({ event, threadSeq }: StreamedEvent, { endedStart }: Partial<ReplayPosition>): boolean {
  return event === answerEvent && toThreadStart(threadSeq) === endedStart;
}
