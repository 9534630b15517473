import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { decodeEnd } from '../../../pipelines/agents/execute/publish-end.ts';
import {
  type EventFilter,
  findReplayPosition,
  isStaleAnswer,
  toProtocolMessage,
} from '../../../pipelines/agents/protocol/protocol-event.ts';
import {
  missingValuesMode,
  type StreamedEvent,
  type StreamReader,
} from '../../../pipelines/agents/streams/stream-types.ts';
import { readEarlierStarts } from '../../../pipelines/agents/threads/deleted-threads.ts';
import { optional } from '../../server/formats.ts';
import { RawResponse } from '../../server/operation.ts';
import { createThreadRule } from '../access/rules.ts';
import { type Agents, defineAgentOperation, readAccess } from '../agent-operation.ts';
import { ThreadParams } from '../agent-schema.ts';
import {
  buildLiveOptions,
  createEventStream,
  eventStreamHeaders,
  type SseFrame,
  toStreamError,
} from '../streaming/sse.ts';
import type { CommandError } from './command.ts';

interface SubscriptionFilter {
  readonly channels: readonly string[];
  readonly namespaces?: readonly (readonly string[])[] | null;
  readonly depth?: number | null;
}

/** Opens a reader for the events of a thread after `since`. The thread need not exist yet. */
async function openEventReader(
  { hub, database, deploymentId }: Agents,
  threadId: string,
  since: number | null | undefined,
): Promise<{ readonly source: StreamReader; readonly endedStart?: number | undefined }> {
  const thread = { deploymentId, threadId };
  if (since == null) {
    const { threadSeq, endedStart } = await findReplayPosition(database, deploymentId, threadId);
    return { source: await hub.readThread(thread, { threadSeq }), endedStart };
  }
  const earlierStarts = await readEarlierStarts(database, deploymentId, threadId);
  const openStarts = hub.listOpenStarts(thread, since);
  return { source: await hub.readThread({ ...thread, earlierStarts }, { threadSeq: since, openStarts }) };
}

export const toEventFilter = ({ channels, namespaces, depth }: SubscriptionFilter): EventFilter => ({
  channels,
  namespaces: namespaces ?? undefined,
  depth: depth ?? undefined,
});

/**
 * Filter of an event stream. Fields that are not listed are ignored. Source: `@langchain/protocol` 0.0.13,
 * EventStreamRequest and SubscribeParams.
 */
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

const FilterWithSince = Type.Object({
  ...Filter.properties,
  since: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }), {
    description:
      'Start after the event with this `seq`. The end of an earlier run that was published after that event is sent too. Default: from the beginning of the active runs, otherwise of the last run.',
  }),
});

/**
 * Builds the message for a failure of the stream itself. It is an error without a command id. The official clients
 * report it through `onError` or raise it. Source: `@langchain/protocol` 0.0.21, ErrorResponse, which defines no error
 * code for streams.
 */
export function buildStreamFailure(err: unknown): CommandError {
  return buildFailureMessage(toStreamError(err));
}

function buildFailureMessage({ error, message }: ReturnType<typeof toStreamError>): CommandError {
  return { type: 'error', id: null, error: 'unknown_error', message: `${error}: ${message}` };
}

/**
 * Builds the error message for a run with missing events, or without its last values for readers of the values. Returns
 * undefined if nothing is missing. Readers receive the message before the end of the run.
 */
export function buildMissingEventsError(
  { isEnd, mode, data }: StreamedEvent,
  filters: readonly EventFilter[],
): CommandError | undefined {
  if (isEnd && decodeEnd(data).events_missing) return buildStreamFailure(runlakeError('STREAM_INCOMPLETE'));
  if (mode !== missingValuesMode || !filters.some(({ channels }) => channels.includes('values'))) return undefined;
  return buildFailureMessage(JSON.parse(Buffer.from(data).toString('utf8')) as ReturnType<typeof toStreamError>);
}

export const streamThreadEvents = defineAgentOperation({
  operationId: 'streamThreadEvents',
  method: 'POST',
  path: '/threads/:thread_id/stream/events',
  summary: 'Stream the events of a thread',
  description:
    'Server-sent events of the event-stream protocol, of all runs, until the client disconnects. The thread need not exist yet. The `event_id` of an event never changes, so that a client that reconnects can skip events that it has. Runs that were not started through the protocol have only the events of their stream modes. A `custom` event with the name `warning`, which every channel receives, has {error, message} of an event that is missing because it is too large or not JSON.',
  access: readAccess,
  rule: createThreadRule('threads:read'),
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: FilterWithSince,
    response: { 200: Type.String() },
    produces: 'text/event-stream',
  },
  handler: async (input) => {
    const { params, body, services } = input;
    const filter = toEventFilter(body);
    const { source, endedStart } = await openEventReader(services.agents, params.thread_id.toLowerCase(), body.since);
    const stream = createEventStream<StreamedEvent>({
      ...buildLiveOptions(input),
      source,
      frame: (event) => {
        if (isStaleAnswer(event, { endedStart })) return undefined;
        const missing = buildMissingEventsError(event, [filter]);
        const message = toProtocolMessage(event, [filter]);
        return [
          ...(missing ? [toFailureFrame(missing)] : []),
          ...(message ? [{ event: message.method, data: Buffer.from(message.text), id: message.id }] : []),
        ];
      },
      failure: (err) => toFailureFrame(buildStreamFailure(err)),
      clientReconnects: true,
    });
    return new RawResponse({ headers: eventStreamHeaders, body: stream });
  },
});

function toFailureFrame(failure: CommandError): SseFrame {
  return { event: 'error', data: Buffer.from(JSON.stringify(failure)) };
}
