import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { decodeEnd } from '../../../pipelines/agents/execute/publish-end.ts';
import { type EventFilter, protocolMessage } from '../../../pipelines/agents/protocol/protocol-event.ts';
import { replayPosition } from '../../../pipelines/agents/protocol/replay-position.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import { optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import type { Agents } from '../agent-services.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { errorOfStream, eventStream, eventStreamHeaders, type SseFrame } from '../streaming/sse.ts';
import type { CommandError } from './command.ts';

interface Wanted {
  readonly channels: readonly string[];
  readonly namespaces?: readonly (readonly string[])[] | null;
  readonly depth?: number | null;
  readonly since?: number | null;
}

/** Opens a reader of the events of a thread, which need not exist yet, and returns it with the filter to apply. */
export async function openEvents(
  { hub, database, deploymentId }: Pick<Agents, 'hub' | 'database' | 'deploymentId'>,
  threadId: string,
  { channels, namespaces, depth, since }: Wanted,
): Promise<{ readonly reader: StreamReader; readonly filter: EventFilter }> {
  const from = since == null ? await replayPosition(database, deploymentId, threadId) : { threadSeq: since };
  const reader = await hub.readThread({ deploymentId, threadId }, from);
  return { reader, filter: { channels, namespaces: namespaces ?? undefined, depth: depth ?? undefined } };
}

/** Source: `@langchain/protocol` 0.0.13, EventStreamRequest and SubscribeParams. Other fields are ignored. */
export const Filter = Type.Object({
  channels: Type.Array(
    Type.String({
      pattern: '^(?:values|updates|messages|tools|lifecycle|input|checkpoints|tasks|custom(?::.{1,200})?)$',
    }),
    {
      minItems: 1,
      maxItems: 100,
      description:
        'values, updates, messages, tools, lifecycle, input, tasks, checkpoints, custom, or `custom:` with the name of one custom event.',
    },
  ),
  namespaces: optional(
    Type.Array(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 }), { maxItems: 100 }),
    {
      description: 'Only namespaces with one of these prefixes. Default: all.',
    },
  ),
  depth: optional(Type.Integer({ minimum: 0, maximum: 1_000 }), {
    description: 'Maximum number of levels below those prefixes. Default: no limit.',
  }),
});

const FilterSince = Type.Object({
  ...Filter.properties,
  since: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), {
    description:
      'Start after the event with this `seq`. Default: from the beginning of the active runs, otherwise of the last run.',
  }),
});

/**
 * Builds the message for a failure of the stream itself: an error without a command id. Stock clients report it through
 * `onError` or raise it. Source: `@langchain/protocol` 0.0.21, ErrorResponse, which has no code for streams.
 */
export function streamFailure(err: unknown): CommandError {
  const { error, message } = errorOfStream(err);
  return { type: 'error', id: null, error: 'unknown_error', message: `${error}: ${message}` };
}

/** Builds the message for a gap in the events of a run; readers receive it before the end of the run. */
export function missingEvents({ isEnd, data }: StreamedEvent): CommandError | undefined {
  return isEnd && decodeEnd(data).events_missing ? streamFailure(runlakeError('STREAM_INCOMPLETE')) : undefined;
}

export const streamThreadEvents = defineAgentOperation({
  operationId: 'streamThreadEvents',
  method: 'POST',
  path: '/threads/:thread_id/stream/events',
  tag: 'event protocol',
  summary: 'Stream the events of a thread',
  description:
    'Server-sent events of the event-stream protocol, of all runs, until the client disconnects. The thread need not exist yet. The `event_id` of an event never changes, so that a client that reconnects can skip events that it has. Runs that were not started through the protocol have only the events of their stream modes.',
  access: reads,
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: FilterSince,
    response: { 200: Type.String() },
    produces: 'text/event-stream',
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const { reader, filter } = await openEvents(agents, params.thread_id.toLowerCase(), body);
    const stream = eventStream<StreamedEvent>({
      source: reader,
      frame: (event) => {
        const missing = missingEvents(event);
        const message = protocolMessage(event, filter);
        return [
          ...(missing ? [failureFrame(missing)] : []),
          ...(message ? [{ event: message.method, data: Buffer.from(message.text), id: message.id }] : []),
        ];
      },
      failure: (err) => failureFrame(streamFailure(err)),
      heartbeatMs: agents.config.agentsHeartbeatMs,
      stopping: request.server.drainStarted,
      accessEnded: request.access?.ended,
      clientReconnects: true,
      logger: request.log,
    });
    return new Answer({ headers: { 'content-type': 'text/event-stream', ...eventStreamHeaders }, body: stream });
  },
});

function failureFrame(failure: CommandError): SseFrame {
  return { event: 'error', data: Buffer.from(JSON.stringify(failure)) };
}
