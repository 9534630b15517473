import { Type } from 'typebox';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { decodeEnd } from '../../../pipelines/agents/execute/publish-end.ts';
import { encodeStateUpdate, stateUpdateMode } from '../../../pipelines/agents/streams/publish-state.ts';
import { OpenStarts } from '../../../pipelines/agents/streams/read-position.ts';
import {
  endSeq,
  protocolMode,
  type StreamedEvent,
  type StreamReader,
  toThreadSeq,
  toThreadStart,
} from '../../../pipelines/agents/streams/stream-types.ts';
import { readEarlierStarts } from '../../../pipelines/agents/threads/deleted-threads.ts';
import { readThreadHead } from '../../../pipelines/agents/threads/thread.ts';
import { readThreadState } from '../../../pipelines/agents/threads/thread-state.ts';
import { OneOf } from '../../server/formats.ts';
import type { LiveSource } from '../../server/live-body.ts';
import { RawResponse } from '../../server/operation.ts';
import { createThreadRule } from '../access/rules.ts';
import { type Agents, defineAgentOperation, readAccess } from '../agent-operation.ts';
import { ThreadParams } from '../agent-schema.ts';
import { buildEndFrame, formatEventName } from './run-response.ts';
import {
  buildLiveOptions,
  createEventStream,
  eventStreamHeaders,
  formatThreadEventId,
  LastEventId,
  readThreadStartPosition,
  type SseFrame,
  toStreamError,
} from './sse.ts';

/** An event, with the state of its thread if the event changed it. The state is JSON text of {thread_id, state}. */
interface ThreadEvent {
  readonly event: StreamedEvent;
  readonly state?: string;
}

/** Returns the events of a thread. Adds the current state of the thread to the end of each run. */
function addStates(reader: StreamReader, agents: Agents, threadId: string): LiveSource<ThreadEvent> {
  /** Reads the current state. Returns undefined if the thread is deleted or its graph is unusable. */
  async function readCurrentState(): Promise<string | undefined> {
    try {
      return encodeStateUpdate(threadId, await readThreadState(agents, threadId, { subgraphs: false }));
    } catch (error) {
      if (isRunlakeError(error) && error.class === 'caller') return undefined;
      throw error;
    }
  }

  return {
    async *[Symbol.asyncIterator]() {
      for await (const event of reader) {
        const isUpdate = event.mode === stateUpdateMode;
        const update = isUpdate ? Buffer.from(event.data).toString('utf8') : undefined;
        const state = event.isEnd ? await readCurrentState() : update;
        yield { event, ...(state !== undefined && { state }) };
      }
    },
    close: () => reader.close(),
  };
}

const Modes = Type.Optional(Type.Array(OneOf(['run_modes', 'lifecycle', 'state_update'])));

export const streamThread = defineAgentOperation({
  operationId: 'streamThread',
  method: 'GET',
  path: '/threads/:thread_id/stream',
  summary: 'Stream the events of all runs of a thread',
  description:
    'Server-sent events of all runs, until the client disconnects. Mode `run_modes` (default) has the events of the runs. `lifecycle` has only their start and end: `metadata` with run_id and attempt, and `metadata` with status `run_done`. `state_update` has only `state_update` events with {thread_id, state}, when state is written outside a run and when a run has ended.',
  access: readAccess,
  rule: createThreadRule('threads:read'),
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    query: Type.Object({ stream_mode: Modes, stream_modes: Modes, last_event_id: LastEventId }),
    response: { 200: Type.String() },
    produces: 'text/event-stream',
  },
  handler: async (input) => {
    const { params, query, request } = input;
    const { agents } = input.services;
    const modes = [...(query.stream_mode ?? []), ...(query.stream_modes ?? [])];
    const wantsAllEvents = modes.length === 0 || modes.includes('run_modes');
    const wantsLifecycle = wantsAllEvents || modes.includes('lifecycle');
    const wantsStates = modes.includes('state_update');
    const isIncluded = ({ isEnd, event, mode }: StreamedEvent) =>
      mode !== protocolMode &&
      mode !== stateUpdateMode &&
      (wantsAllEvents || (wantsLifecycle && (isEnd || event === 'metadata')));
    const { deploymentId, database, hub } = agents;
    const threadId = params.thread_id.toLowerCase();
    const from = readThreadStartPosition(request, query);
    const earlierStarts = await readEarlierStarts(database, deploymentId, threadId);
    const source = await hub.readThread({ deploymentId, threadId, earlierStarts }, from);
    try {
      await readThreadHead(database, deploymentId, threadId);
    } catch (error) {
      source.close();
      throw error;
    }
    const path = `/threads/${threadId}`;
    const eventSource: LiveSource<ThreadEvent> = {
      async *[Symbol.asyncIterator]() {
        for await (const event of source) yield { event };
      },
      ready: () => {
        const event = source.ready?.();
        return event && { event };
      },
      close: () => source.close(),
    };
    // The end of a run may follow the first events of the next run. With its own id, a client that reconnects would receive
    // those events again, so ids never go back.
    let highest = typeof from === 'string' ? 0 : from.threadSeq;
    const openStarts = new OpenStarts(from, earlierStarts);
    const body = createEventStream<ThreadEvent>({
      ...buildLiveOptions(input),
      source: wantsStates ? addStates(source, agents, threadId) : eventSource,
      frame: ({ event, state }) => {
        highest = Math.max(highest, findLastSeq(event));
        openStarts.record(event);
        const id = formatThreadEventId(highest, openStarts);
        const last = isIncluded(event) && event.isEnd && wantsAllEvents ? buildLastFrame(event) : undefined;
        const frames = [
          ...(last ? [last] : []),
          ...(isIncluded(event) ? [encodeEvent(event)] : []),
          ...(state !== undefined ? [{ event: stateUpdateMode, data: Buffer.from(state) }] : []),
        ];
        // Only the last frame has the id, so that a client that has received part of them receives all of them again.
        return frames.map((frame, index) => (index === frames.length - 1 ? { ...frame, id } : frame));
      },
      clientReconnects: true,
    });
    const headers = { ...eventStreamHeaders, 'content-location': path, location: `${path}/stream` };
    return new RawResponse({ headers, body });
  },
});

/**
 * Returns the number for the id of an event. A state update is the only event of its start, so its id is that of an end.
 * Otherwise a client that reconnects would wait for the end.
 */
function findLastSeq({ mode, threadSeq }: StreamedEvent): number {
  return mode === stateUpdateMode ? toThreadSeq(toThreadStart(threadSeq), endSeq) : threadSeq;
}

/**
 * Returns the frame to send before the end of a run. If events of the run are missing in the log, the frame is an
 * error; otherwise it is the result of {@link buildEndFrame}.
 */
function buildLastFrame({ data }: StreamedEvent): SseFrame | undefined {
  const end = decodeEnd(data);
  if (!end.events_missing) return buildEndFrame(end);
  return { event: 'error', data: Buffer.from(JSON.stringify(toStreamError(runlakeError('STREAM_INCOMPLETE')))) };
}

function encodeEvent(event: StreamedEvent): SseFrame {
  if (!event.isEnd) return { event: formatEventName(event), data: event.data };
  const data = Buffer.from(JSON.stringify({ status: 'run_done', run_id: event.runId }));
  return { event: 'metadata', data };
}
