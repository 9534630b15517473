import type { Readable } from 'node:stream';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { decodeEnd } from '../../../pipelines/agents/execute/publish-end.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../../pipelines/agents/runs/cancel-run.ts';
import type { RunIds } from '../../../pipelines/agents/runs/run.ts';
import {
  missingValuesMode,
  protocolMode,
  type RunEnd,
  type StreamedEvent,
  type StreamReader,
  warningMode,
} from '../../../pipelines/agents/streams/stream-types.ts';
import { createLiveBody } from '../../server/live-body.ts';
import { RawResponse } from '../../server/operation.ts';
import type { AgentInput } from '../agent-operation.ts';
import {
  buildLiveOptions,
  createEventStream,
  eventStreamHeaders,
  formatEventId,
  type SseFrame,
  toStreamError,
} from './sse.ts';

export interface FollowedRun extends RunIds {
  /** Whether the run is cancelled if the client disconnects before the run ends. */
  readonly cancelOnDisconnect: boolean;
  /** Path of the run, sent in `Content-Location`. */
  readonly path: string;
  /** Path for reconnecting to the run. Undefined if a client that reconnects would miss events. */
  readonly reconnectTo?: string | undefined;
}

type RunContext = Pick<AgentInput, 'services' | 'request'>;

/** Streams the events of a run until its final state is committed. With `modes`, streams only events of these modes. */
export function streamRunEvents(
  context: RunContext,
  run: FollowedRun,
  { reader, modes }: { readonly reader: StreamReader; readonly modes?: readonly string[] | undefined },
): RawResponse {
  const selectedModes = modes && new Set([...modes, 'metadata', warningMode, 'error']);
  const body = createEventStream({
    ...buildRunOptions(context, run),
    source: reader,
    frame: (event) => {
      if (event.isEnd) {
        const end = decodeEnd(event.data);
        if (end.events_missing) throw runlakeError('STREAM_INCOMPLETE');
        return buildEndFrame(end, formatEventId(event));
      }
      return event.mode === protocolMode || (selectedModes && !isRequested(event, selectedModes))
        ? undefined
        : encodeEvent(event);
    },
    clientReconnects: run.reconnectTo !== undefined,
  });
  return buildResponse(run, body, eventStreamHeaders);
}

/**
 * Responds with the final state of a run as JSON. Until then, line feeds keep the connection open. `reader` must be
 * attached before the run is created.
 */
export function respondWithRunEnd(context: RunContext, run: FollowedRun, reader?: StreamReader): RawResponse {
  const waitController = new AbortController();
  const { agents } = context.services;
  const source = {
    async *[Symbol.asyncIterator]() {
      const text = await awaitRunEnd(agents, run, {
        ...(reader && { attached: reader }),
        signal: waitController.signal,
      });
      if (text !== undefined) yield text;
    },
    close: () => waitController.abort(),
  };
  const body = createLiveBody<string>({
    ...buildRunOptions(context, run),
    source,
    encode: (text) => [text],
    heartbeat: '\n',
    encodeSourceError: encodeFailure,
    encodeServerStop: run.reconnectTo === undefined ? () => encodeFailure(runlakeError('DRAINING')) : undefined,
  });
  return buildResponse(run, body, { 'content-type': 'application/json' });
}

function buildResponse(
  { path, reconnectTo }: FollowedRun,
  body: Readable,
  headers: Readonly<Record<string, string>>,
): RawResponse {
  const location = reconnectTo === undefined ? {} : { location: reconnectTo };
  return new RawResponse({ headers: { ...headers, 'content-location': path, ...location }, body });
}

function buildRunOptions(context: RunContext, run: FollowedRun) {
  const { database, deploymentId, wake } = context.services.agents;
  const { log } = context.request;
  const cancel = () =>
    cancelRun(database, deploymentId, run, 'interrupt').then(wake, (err) =>
      log.warn({ err, runId: run.runId }, 'cancelling a run after its client disconnected failed'),
    );
  return { ...buildLiveOptions(context), ...(run.cancelOnDisconnect && { onClientDisconnect: () => void cancel() }) };
}

function encodeFailure(error: unknown): Buffer {
  return Buffer.from(JSON.stringify({ __error__: toStreamError(error) }));
}

function encodeEvent(event: StreamedEvent): SseFrame {
  return { event: formatEventName(event), data: event.data, id: formatEventId(event) };
}

/**
 * Returns the last frame of a run. It contains the failure of the run if no earlier event reported it, otherwise the
 * feedback links. Returns undefined if there is neither. `id` is the event id for readers that reconnect.
 */
export function buildEndFrame({ unsaid, feedback }: RunEnd, id?: string): SseFrame | undefined {
  const idField = id === undefined ? {} : { id };
  if (unsaid !== undefined) return { event: 'error', data: Buffer.from(JSON.stringify(unsaid)), ...idField };
  return feedback && { event: 'feedback', data: Buffer.from(JSON.stringify(feedback)), ...idField };
}

/**
 * Returns the name of an event. For an event of a subgraph, the namespace follows the name after `|`. Source: reference
 * of the agent server, "Events".
 */
export function formatEventName({ event, namespace }: Pick<StreamedEvent, 'event' | 'namespace'>): string {
  return namespace === '' ? event : `${event}|${namespace}`;
}

/**
 * Returns true if `modes` contains the mode of the event or the first part of the event's name, such as `messages` for
 * `messages/partial`.
 */
function isRequested({ mode, event }: StreamedEvent, modes: ReadonlySet<string>): boolean {
  if (mode === missingValuesMode) return modes.has('values');
  return modes.has(mode) || modes.has(event.split('/', 1)[0] ?? event);
}
