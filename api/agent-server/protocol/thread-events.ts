import { Type } from 'typebox';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { decodeEnd } from '../../../pipelines/agents/execute/publish-end.ts';
import {
  type EventFilter,
  findReplayPosition,
  toProtocolMessage,
} from '../../../pipelines/agents/protocol/protocol-event.ts';
import {
  type StreamedEvent,
  type StreamReader,
  toThreadStart,
} from '../../../pipelines/agents/streams/stream-types.ts';
import { readEarlierStarts } from '../../../pipelines/agents/threads/deleted-threads.ts';
import { isAccessError } from '../../server/access-watch.ts';
import { optional } from '../../server/formats.ts';
import { parseJsonBody } from '../../server/json-body.ts';
import { RawResponse } from '../../server/operation.ts';
import { executeRequestPart } from '../access/agent-access.ts';
import { allowAllRule, createThreadRule } from '../access/rules.ts';
import { type Agents, defineAgentOperation, readAccess } from '../agent-operation.ts';
import { ClosedObject, ThreadParams } from '../agent-schema.ts';
import {
  buildLiveOptions,
  createEventStream,
  eventStreamHeaders,
  type SseFrame,
  toStreamError,
} from '../streaming/sse.ts';
import {
  buildErrorResponse,
  type Command,
  type CommandContext,
  type CommandError,
  CommandRejectedError,
  createParamsReader,
  type MessageMemory,
  reserveMessageMemory,
} from './command.ts';
import { handleCommand, postThreadCommand, readCommand } from './post-command.ts';

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
): Promise<StreamReader> {
  const thread = { deploymentId, threadId };
  if (since == null) return hub.readThread(thread, await findReplayPosition(database, deploymentId, threadId));
  const earlierStarts = await readEarlierStarts(database, deploymentId, threadId);
  return hub.readThread({ ...thread, earlierStarts }, { threadSeq: since });
}

const toEventFilter = ({ channels, namespaces, depth }: SubscriptionFilter): EventFilter => ({
  channels,
  namespaces: namespaces ?? undefined,
  depth: depth ?? undefined,
});

/**
 * Filter of an event stream. Fields that are not listed are ignored. Source: `@langchain/protocol` 0.0.13,
 * EventStreamRequest and SubscribeParams.
 */
const Filter = Type.Object({
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
      'Start after the event with this `seq`. Default: from the beginning of the active runs, otherwise of the last run.',
  }),
});

/**
 * Builds the message for a failure of the stream itself. It is an error without a command id. The official clients
 * report it through `onError` or raise it. Source: `@langchain/protocol` 0.0.21, ErrorResponse, which defines no error
 * code for streams.
 */
function buildStreamFailure(err: unknown): CommandError {
  const { error, message } = toStreamError(err);
  return { type: 'error', id: null, error: 'unknown_error', message: `${error}: ${message}` };
}

/**
 * Builds the error message for a run with missing events. Returns undefined if no events are missing. Readers receive
 * the message before the end of the run.
 */
function buildMissingEventsError({ isEnd, data }: StreamedEvent): CommandError | undefined {
  return isEnd && decodeEnd(data).events_missing ? buildStreamFailure(runlakeError('STREAM_INCOMPLETE')) : undefined;
}

export const streamThreadEvents = defineAgentOperation({
  operationId: 'streamThreadEvents',
  method: 'POST',
  path: '/threads/:thread_id/stream/events',
  tag: 'event protocol',
  summary: 'Stream the events of a thread',
  description:
    'Server-sent events of the event-stream protocol, of all runs, until the client disconnects. The thread need not exist yet. The `event_id` of an event never changes, so that a client that reconnects can skip events that it has. Runs that were not started through the protocol have only the events of their stream modes.',
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
    const stream = createEventStream<StreamedEvent>({
      ...buildLiveOptions(input),
      source: await openEventReader(services.agents, params.thread_id.toLowerCase(), body.since),
      frame: (event) => {
        const missing = buildMissingEventsError(event);
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

/**
 * A WebSocket connection of the event-stream protocol. The client sends commands; the server sends responses and
 * events. Each message is one JSON text.
 *
 * Invariant: the server executes commands one at a time, in order. It sends the events of all subscriptions in the
 * order of the thread, because an event does not say to which subscription it belongs. It reads events from the log
 * only as fast as the socket accepts them. When either side closes the socket, the server closes all readers of the
 * connection.
 *
 *   1. A command runs after the response to the previous command. If more than `maxQueuedCommands` are waiting, the
 *      socket closes.
 *   2. After the response to `subscription.subscribe`, the server sends the events of the subscription. They start at
 *      the beginning of the active runs or, if there are none, of the last run. The server reads the next event after
 *      it has sent the previous one.
 *   3. One reader serves all subscriptions, and sends an event once if it matches any of them. If the events of a new
 *      subscription start before the position of the reader, a reader that starts there replaces it. It sends no event
 *      again for the subscriptions for which the event was read before.
 *   4. If the reader fails, the server sends an error and closes the socket. Clients then reconnect and subscribe again.
 *   5. A peer that does not respond to a ping in time is disconnected. When the server stops, it closes the socket
 *      with 1012.
 *   6. The caller is authenticated again for each command. If authentication fails or the caller has lost access, the
 *      socket closes with 1008 and the error code.
 *   7. Each command counts as a request for the rate limits. The server refuses a command that exceeds them; the
 *      socket stays open.
 */

/** The methods of a `ws` socket that this file uses. */
interface Socket {
  send(text: string, onSent: (error?: Error) => void): void;
  ping(): void;
  close(code: number, reason: string): void;
  terminate(): void;
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): void;
  on(event: 'pong' | 'close', listener: () => void): void;
}

interface Subscription {
  readonly filter: EventFilter;
  /** Sequence number up to which its events were read. */
  readUpTo: number;
}

const maxSubscriptions = 100;
const maxQueuedCommands = 100;
/** Maximum time for a peer to complete the closing handshake. */
const closeTimeoutMs = 1_000;

const readSubscribeParams = createParamsReader(Filter);
const readUnsubscribeParams = createParamsReader(ClosedObject({ subscription_id: Type.String({ maxLength: 100 }) }));

/** Returns the HTTP operation whose rule authorises a command. */
const findOperation = ({ method }: Command) =>
  method.startsWith('subscription.') ? streamThreadEvents : postThreadCommand;

function serveThreadSocket(socket: Socket, commandContext: CommandContext): void {
  const { agents, request, threadId } = commandContext;
  const { config } = agents;
  const subscriptions = new Map<string, Subscription>();
  /** The reader whose events are sent, and one that may replace it. */
  const readers = new Set<StreamReader>();
  /** Highest sequence number that any reader has read. */
  let highest = 0;
  /** Starts of runs whose end was not read. It may arrive after the first events of the next run. */
  const openStarts = new Set<number>();
  let lastReader: Promise<void> = Promise.resolve();
  let subscriptionCount = 0;
  let queuedCommands = 0;
  let lastCommand: Promise<void> = Promise.resolve();
  let isAlive = true;
  let isClosed = false;

  function close(code: number, reason: string): void {
    socket.close(code, reason);
    setTimeout(() => socket.terminate(), closeTimeoutMs).unref();
  }

  const stop = () => close(1012, 'DRAINING');
  const stopping = request.server.drainStarted;
  stopping.addEventListener('abort', stop);
  const accessEnded = request.access?.ended;
  const closeWithoutAccess = () => close(1008, toStreamError(accessEnded?.reason).error);
  accessEnded?.addEventListener('abort', closeWithoutAccess);
  const pingTimer = setInterval(
    () => {
      if (!isAlive) return socket.terminate();
      isAlive = false;
      socket.ping();
    },
    Math.max(config.agentsHeartbeatMs * 3, 5_000),
  );
  socket.on('pong', () => (isAlive = true));
  socket.on('close', () => {
    isClosed = true;
    clearInterval(pingTimer);
    stopping.removeEventListener('abort', stop);
    accessEnded?.removeEventListener('abort', closeWithoutAccess);
    readers.forEach(endReader);
  });
  socket.on('message', (data, isBinary) => {
    isAlive = true;
    if (++queuedCommands > maxQueuedCommands) return close(1008, `more than ${maxQueuedCommands} commands queued`);
    const memory = reserveMessageMemory(commandContext, data.length, () => close(1013, 'OVERLOADED'));
    if (memory === undefined) return;
    lastCommand = lastCommand.then(async () => {
      await handleMessage(data, isBinary, memory).finally(() => memory.close());
      queuedCommands--;
    });
  });
  if (stopping.aborted) stop();

  const send = (message: string) => new Promise<void>((resolve) => socket.send(message, () => resolve()));

  async function handleMessage(data: Buffer, isBinary: boolean, memory: MessageMemory): Promise<void> {
    let id: number | null = null;
    let begin: (() => void) | undefined;
    let accessError: RunlakeError | undefined;
    try {
      if (isBinary) throw new CommandRejectedError('invalid_argument', 'Messages must be text, not binary.');
      const readResult = readCommand(parseJsonBody(data, config.maxJsonDepth, memory));
      if ('errorResponse' in readResult) return await send(JSON.stringify(readResult.errorResponse));
      id = readResult.command.id;
      const caller = await request.access?.renew().catch((err) => {
        if (isAccessError(err)) accessError = err;
        throw err;
      });
      const commandResponse = await executeRequestPart(
        request,
        findOperation(readResult.command),
        buildInput(readResult.command),
        ({ body, access }) =>
          handleCommand({ ...commandContext, ...(caller && { caller }), ...(access && { access }) }, body, {
            'subscription.subscribe': async (_context, params) => {
              const newSubscription = await subscribe(params);
              begin = newSubscription.begin;
              return { subscription_id: newSubscription.id };
            },
            'subscription.unsubscribe': async (_commandContext, params) => unsubscribe(params),
          }),
      );
      await send(JSON.stringify(commandResponse));
      begin?.();
    } catch (err) {
      const errorResponse = buildErrorResponse(id, err);
      if (errorResponse === undefined) request.log.warn({ err }, 'command failed');
      const failure: CommandError = { type: 'error', id, error: 'unknown_error', message: toStreamError(err).message };
      await send(JSON.stringify(errorResponse ?? failure));
      if (accessError) close(1008, accessError.code);
    }
  }

  const buildInput = (command: Command) => ({ params: { thread_id: threadId }, body: command });

  async function subscribe(params: unknown): Promise<{ readonly id: string; begin(): void }> {
    if (subscriptions.size >= maxSubscriptions) {
      throw new CommandRejectedError('invalid_argument', `Subscription limit reached (${maxSubscriptions}).`);
    }
    const filter = toEventFilter(readSubscribeParams(params));
    const { hub, database, deploymentId } = agents;
    const start = await findReplayPosition(database, deploymentId, threadId);
    const replay = await hub.readThread({ deploymentId, threadId }, { ...start, openStarts });
    if (isClosed) replay.close();
    else readers.add(replay);
    const id = `s${++subscriptionCount}`;
    const begin = () => {
      // Without subscriptions there is no reader.
      const position = Math.min(...[...subscriptions.values()].map(({ readUpTo }) => readUpTo));
      if (position <= start.threadSeq) endReader(replay);
      else continueWith(replay);
      subscriptions.set(id, { filter, readUpTo: start.threadSeq });
    };
    return { id, begin };
  }

  /** Sends the events of `replay` instead of those of the current reader. */
  function continueWith(replay: StreamReader): void {
    for (const reader of readers) if (reader !== replay) endReader(reader);
    // The event that the former reader has read last is sent before.
    lastReader = lastReader
      .then(async () => {
        for await (const event of replay) await sendEvent(event);
      })
      .catch(async (err) => {
        request.log.warn({ err }, 'subscriptions failed');
        await send(JSON.stringify(buildStreamFailure(err)));
        close(1011, toStreamError(err).error);
      });
  }

  /** Sends an event once if it matches any subscription for which it was not read yet. */
  async function sendEvent(event: StreamedEvent): Promise<void> {
    const { isEnd, threadSeq } = event;
    const isUnreadEnd = isEnd && openStarts.delete(toThreadStart(threadSeq));
    if (!isEnd && threadSeq > highest) openStarts.add(toThreadStart(threadSeq));
    highest = Math.max(highest, threadSeq);
    const reading = [...subscriptions.values()].filter(({ readUpTo }) => isUnreadEnd || threadSeq > readUpTo);
    if (reading.length === 0) return;
    for (const each of reading) each.readUpTo = Math.max(each.readUpTo, threadSeq);
    const missing = buildMissingEventsError(event);
    if (missing !== undefined) await send(JSON.stringify(missing));
    const message = toProtocolMessage(
      event,
      reading.map(({ filter }) => filter),
    );
    if (message !== undefined) await send(message.text);
  }

  function endReader(reader: StreamReader): void {
    reader.close();
    readers.delete(reader);
  }

  function unsubscribe(params: unknown): object {
    const { subscription_id: id } = readUnsubscribeParams(params);
    if (!subscriptions.delete(id))
      throw new CommandRejectedError('no_such_subscription', `Unknown subscription '${id}'.`);
    if (subscriptions.size === 0) readers.forEach(endReader);
    return {};
  }
}

export const openThreadSocket = defineAgentOperation({
  operationId: 'openThreadSocket',
  method: 'GET',
  path: '/threads/:thread_id/stream/events',
  tag: 'event protocol',
  summary: 'Open a WebSocket of the event-stream protocol',
  description:
    'Commands of postThreadCommand, and subscription.subscribe {channels, namespaces, depth} and subscription.unsubscribe {subscription_id}. Each message is one JSON text of at most 1 MiB.',
  access: readAccess,
  // Each command and each subscription is authorised separately.
  rule: allowAllRule,
  errors: ['WEBSOCKET_EXPECTED'],
  schema: { params: ThreadParams, response: { 200: Type.Null() } },
  handler: async () => {
    throw runlakeError('WEBSOCKET_EXPECTED');
  },
  socket: (socket: Socket, { params, caller, services: { agents }, request }) =>
    serveThreadSocket(socket, { agents, caller, request, threadId: params.thread_id.toLowerCase() }),
});
