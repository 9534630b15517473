import { Type } from 'typebox';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { protocolMessage } from '../../../pipelines/agents/protocol/protocol-event.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import { isAccessError } from '../../server/access-watch.ts';
import { parseJsonBody } from '../../server/json-body.ts';
import { asOperation } from '../access/as-operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Closed } from '../agent-schema.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { errorOfStream } from '../streaming/sse.ts';
import { buildRefusal, type Command, type CommandError, CommandRefused } from './command.ts';
import { answerCommand, readCommand } from './post-command.ts';
import { type CommandScene, paramsReader } from './run-commands.ts';
import { Filter, missingEvents, openEvents, streamFailure } from './thread-stream.ts';

/**
 * One WebSocket of the event-stream protocol: commands arrive; responses and events are sent, each as one JSON text.
 *
 * Invariant: commands are answered one at a time, in order. No more events are read from the log than the socket
 * accepts. When either side closes the socket, all its readers are closed.
 *
 *   1. A command runs after the response to the previous one. The socket closes if more than `maxQueuedCommands` wait.
 *   2. After the response to `subscription.subscribe`, its events follow, from the beginning of the active runs or else
 *      of the last run. The next event is read after the previous one is sent.
 *   3. If a reader fails, the socket sends an error and closes: clients reconnect and subscribe again.
 *   4. A peer that does not respond to a ping in time is disconnected. A server that stops closes with 1012.
 *   5. The caller is authenticated again for each command. If that fails, or the caller loses access, the socket closes
 *      with 1008 and the code of the error.
 */

/** The methods of a `ws` socket that are used here. */
interface Socket {
  send(text: string, sent: (error?: Error) => void): void;
  ping(): void;
  close(code: number, reason: string): void;
  terminate(): void;
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): void;
  on(event: 'pong' | 'close', listener: () => void): void;
}

const maxSubscriptions = 100;
const maxQueuedCommands = 100;
/** How long a peer has to complete the closing handshake. */
const closeTimeoutMs = 1_000;

const subscribeParams = paramsReader(Filter);
const unsubscribeParams = paramsReader(Closed({ subscription_id: Type.String({ maxLength: 100 }) }));

/** The HTTP operation that authorises a command. */
const operationFor = ({ method }: Command) =>
  method.startsWith('subscription.') ? 'streamThreadEvents' : 'postThreadCommand';

function serveThreadSocket(socket: Socket, scene: CommandScene): void {
  const { agents, request } = scene;
  const { config } = agents;
  const readers = new Map<string, StreamReader>();
  let subscriptionCount = 0;
  let queuedCommands = 0;
  let lastCommand: Promise<void> = Promise.resolve();
  let isAlive = true;
  let closed = false;

  function close(code: number, reason: string): void {
    socket.close(code, reason);
    setTimeout(() => socket.terminate(), closeTimeoutMs).unref();
  }

  const stop = () => close(1012, 'DRAINING');
  const stopping = request.server.drainStarted;
  stopping.addEventListener('abort', stop);
  const accessEnded = request.access?.ended;
  const refuse = () => close(1008, errorOfStream(accessEnded?.reason).error);
  accessEnded?.addEventListener('abort', refuse);
  const pingTimer = setInterval(
    () => {
      if (!isAlive) return socket.terminate();
      isAlive = false;
      socket.ping();
    },
    Math.max(config.agentsHeartbeatMs * 3, 5_000),
  );
  socket.on('pong', () => {
    isAlive = true;
  });
  socket.on('close', () => {
    closed = true;
    clearInterval(pingTimer);
    stopping.removeEventListener('abort', stop);
    accessEnded?.removeEventListener('abort', refuse);
    for (const reader of readers.values()) reader.close();
    readers.clear();
  });
  socket.on('message', (data, isBinary) => {
    isAlive = true;
    if (++queuedCommands > maxQueuedCommands) return close(1008, `more than ${maxQueuedCommands} commands queued`);
    lastCommand = lastCommand.then(async () => {
      await answer(data, isBinary);
      queuedCommands--;
    });
  });
  if (stopping.aborted) stop();

  const send = (message: string) => new Promise<void>((resolve) => socket.send(message, () => resolve()));

  async function answer(data: Buffer, isBinary: boolean): Promise<void> {
    let id: number | null = null;
    let begin: (() => void) | undefined;
    let accessLost: RunlakeError | undefined;
    try {
      if (isBinary) throw new CommandRefused('invalid_argument', 'Messages must be text, not binary.');
      const read = readCommand(parseJsonBody(data, config.maxJsonDepth));
      if ('refusal' in read) return await send(JSON.stringify(read.refusal));
      id = read.command.id;
      const caller = await request.access?.renew().catch((err) => {
        if (isAccessError(err)) accessLost = err;
        throw err;
      });
      const answered = await asOperation(
        request,
        operationFor(read.command),
        buildInput(read.command),
        ({ body, access }) =>
          answerCommand({ ...scene, ...(caller && { caller }), ...(access && { access }) }, body, {
            'subscription.subscribe': async (_scene, params) => {
              const subscribed = await subscribe(params);
              begin = subscribed.begin;
              return { subscription_id: subscribed.id };
            },
            'subscription.unsubscribe': async (_scene, params) => unsubscribe(params),
          }),
      );
      await send(JSON.stringify(answered));
      begin?.();
    } catch (err) {
      const refusal = buildRefusal(id, err);
      if (refusal === undefined) request.log.warn({ err }, 'command failed');
      const failure: CommandError = { type: 'error', id, error: 'unknown_error', message: errorOfStream(err).message };
      await send(JSON.stringify(refusal ?? failure));
      if (accessLost) close(1008, accessLost.code);
    }
  }

  const buildInput = (command: Command) => ({ params: { thread_id: scene.threadId }, body: command });

  async function subscribe(params: unknown): Promise<{ readonly id: string; begin(): void }> {
    if (readers.size >= maxSubscriptions) {
      throw new CommandRefused('invalid_argument', `Subscription limit reached (${maxSubscriptions}).`);
    }
    const { reader, filter } = await openEvents(agents, scene.threadId, subscribeParams(params));
    const id = `s${++subscriptionCount}`;
    if (closed) reader.close();
    else readers.set(id, reader);
    const sendEvents = async () => {
      for await (const event of reader) {
        const missing = missingEvents(event);
        if (missing !== undefined) await send(JSON.stringify(missing));
        const message = protocolMessage(event, filter);
        if (message !== undefined) await send(message.text);
      }
    };
    const failed = async (err: unknown) => {
      request.log.warn({ err }, 'subscription failed');
      await send(JSON.stringify(streamFailure(err)));
      close(1011, errorOfStream(err).error);
    };
    return { id, begin: () => void sendEvents().catch(failed) };
  }

  function unsubscribe(params: unknown): object {
    const { subscription_id: id } = unsubscribeParams(params);
    const reader = readers.get(id);
    if (reader === undefined) throw new CommandRefused('no_such_subscription', `Unknown subscription '${id}'.`);
    readers.delete(id);
    reader.close();
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
  access: reads,
  errors: ['WEBSOCKET_EXPECTED'],
  schema: { params: ThreadParams, response: { 200: Type.Null() } },
  handler: async () => {
    throw runlakeError('WEBSOCKET_EXPECTED');
  },
  socket: (socket: Socket, { params, caller, services: { agents }, request }) =>
    serveThreadSocket(socket, { agents, caller, request, threadId: params.thread_id.toLowerCase() }),
});
