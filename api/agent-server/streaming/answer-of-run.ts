import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { endHasHole, feedbackInEnd, unsaidInEnd } from '../../../pipelines/agents/execute/end-data.ts';
import { protocolMode } from '../../../pipelines/agents/protocol/protocol-mode.ts';
import { type AwaitedRun, awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../../pipelines/agents/runs/cancel-run.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-ports.ts';
import { Answer } from '../../server/operation.ts';
import type { Agents } from '../agent-services.ts';
import { eventId } from './last-event-id.ts';
import { liveBody } from './live-body.ts';
import { errorOfStream, eventStream, eventStreamHeaders, type SseFrame } from './sse.ts';

export interface FollowedRun extends AwaitedRun {
  /** Whether a client that goes before the end takes the run with it. */
  readonly cancelOnDisconnect: boolean;
  /** Of the run, for `Content-Location`. */
  readonly path: string;
  /** Where clients come back to when the connection breaks; undefined where they would miss something. */
  readonly comesBackTo?: string | undefined;
}

interface Asked {
  readonly services: { readonly agents: Agents };
  readonly request: FastifyRequest;
}

/** The events of a run as they come, until its final state is committed. `modes` leaves out those of others. */
export function streamOfRun(
  asked: Asked,
  run: FollowedRun,
  { reader, modes }: { readonly reader: StreamReader; readonly modes?: readonly string[] | undefined },
): Answer {
  const wanted = modes && new Set([...modes, 'metadata', 'warning', 'error']);
  const body = eventStream({
    ...liveOptions(asked, run),
    source: reader,
    frame: (event) => {
      if (event.isEnd && endHasHole(event.data)) throw fault('STREAM_INCOMPLETE');
      if (event.isEnd) return unsaidFrame(event, eventId(event)) ?? feedbackFrame(event, eventId(event));
      return event.mode === protocolMode || (wanted && !isWanted(event, wanted)) ? undefined : frameOf(event);
    },
    comesBack: run.comesBackTo !== undefined,
  });
  return answer(run, body, { 'content-type': 'text/event-stream', ...eventStreamHeaders });
}

/** What a run came to, as JSON after line feeds that keep the connection open. `reader`: attached before the run was made. */
export function endOfRun(asked: Asked, run: FollowedRun, reader?: StreamReader): Answer {
  const waiting = new AbortController();
  const { agents } = asked.services;
  const source = {
    async *[Symbol.asyncIterator]() {
      const text = await awaitRunEnd(agents, run, { ...(reader && { attached: reader }), signal: waiting.signal });
      if (text !== undefined) yield text;
    },
    close: () => waiting.abort(),
  };
  const body = liveBody<string>({
    ...liveOptions(asked, run),
    source,
    encode: (text) => [text],
    heartbeat: '\n',
    failed: failureText,
    stopped: run.comesBackTo === undefined ? () => failureText(fault('DRAINING')) : undefined,
  });
  return answer(run, body, { 'content-type': 'application/json' });
}

function answer({ path, comesBackTo }: FollowedRun, body: Readable, headers: Readonly<Record<string, string>>): Answer {
  const location = comesBackTo === undefined ? {} : { location: comesBackTo };
  return new Answer({ headers: { ...headers, 'content-location': path, ...location }, body });
}

function liveOptions({ services: { agents }, request }: Asked, run: FollowedRun) {
  const { database, deploymentId, config, wake } = agents;
  const cancel = () =>
    cancelRun(database, deploymentId, run, 'interrupt').then(wake, (err) =>
      request.log.warn({ err, runId: run.runId }, 'a run whose client went could not be cancelled'),
    );
  return {
    heartbeatMs: config.agentsHeartbeatMs,
    stopping: request.server.drainStarted,
    accessEnded: request.access?.ended,
    logger: request.log,
    ...(run.cancelOnDisconnect && { left: () => void cancel() }),
  };
}

function failureText(error: unknown): Buffer {
  return Buffer.from(JSON.stringify({ __error__: errorOfStream(error) }));
}

function frameOf(event: StreamedEvent): SseFrame {
  return { event: nameOf(event), data: event.data, id: eventId(event) };
}

/** What readers of a thread are told of a run whose events the log did not take. */
export function holeFrame({ data }: StreamedEvent): SseFrame | undefined {
  if (!endHasHole(data)) return undefined;
  return { event: 'error', data: Buffer.from(JSON.stringify(errorOfStream(fault('STREAM_INCOMPLETE')))) };
}

/** That a run was given up, of which no event of it tells. `id`: where readers go on that have it. */
export function unsaidFrame({ data }: StreamedEvent, id?: string): SseFrame | undefined {
  const failure = unsaidInEnd(data);
  return failure && { event: 'error', data: failure, ...(id !== undefined && { id }) };
}

/** The last event of a run that asked for links to leave feedback under. `id`: where readers go on that have it. */
export function feedbackFrame({ data }: StreamedEvent, id?: string): SseFrame | undefined {
  const links = feedbackInEnd(data);
  return links && { event: 'feedback', data: links, ...(id !== undefined && { id }) };
}

/** The namespace of a subgraph stands behind a bar. Source: reference of the agent server, "Events". */
export function nameOf({ event, namespace }: Pick<StreamedEvent, 'event' | 'namespace'>): string {
  return namespace === '' ? event : `${event}|${namespace}`;
}

/** By its mode, or by the first part of its name: `messages/partial` is of `messages`. */
function isWanted({ mode, event }: StreamedEvent, wanted: ReadonlySet<string>): boolean {
  return wanted.has(mode) || wanted.has(event.split('/', 1)[0] ?? event);
}
