/**
 * A WebSocket connection of the event-stream protocol. The client sends commands; the server sends responses and
 * events. Each message is one JSON text.
 *
 * Invariant: the server executes commands one at a time, in order. It reads events from the log only as fast as the
 * socket accepts them. When either side closes the socket, the server closes all readers of the connection.
 *
 *   1. A command runs after the response to the previous command. If more than `maxQueuedCommands` are waiting, the
 *      socket closes.
 *   2. After the response to `subscription.subscribe`, the server sends the events of the subscription
 *      (`thread-subscriptions.ts`). They start at the beginning of the active runs or, if there are none, of the last run.
 *   3. If the events cannot be read, the server sends an error and closes the socket. Clients then reconnect and
 *      subscribe again.
 *   4. A peer that does not respond to a ping in time is disconnected. When the server stops, it closes the socket
 *      with 1012.
 *   5. The caller is authenticated again for each command. If authentication fails or the caller has lost access, the
 *      socket closes with 1008 and the error code.
 *   6. Each command counts as a request for the rate limits. The server refuses a command that exceeds them; the
 *      socket stays open.
 */
import { Type } from 'typebox';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { isAccessError } from '../../server/access-watch.ts';
import { parseJsonBody } from '../../server/request-body.ts';
import { executeRequestPart } from '../access/agent-access.ts';
import { allowAllRule } from '../access/rules.ts';
import { defineAgentOperation, readAccess } from '../agent-operation.ts';
import { ThreadParams } from '../agent-schema.ts';
import { toStreamError } from '../streaming/sse.ts';
import {
  buildErrorResponse,
  type Command,
  type CommandContext,
  type CommandError,
  CommandRejectedError,
  type MessageMemory,
  reserveMessageMemory,
} from './command.ts';
import { handleCommand, postThreadCommand, readCommand } from './post-command.ts';
import { buildStreamFailure, streamThreadEvents } from './thread-events.ts';
import { ThreadSubscriptions } from './thread-subscriptions.ts';

/** The methods of a `ws` socket that this file uses. */
interface Socket {
  send(text: string, onSent: (error?: Error) => void): void;
  ping(): void;
  close(code: number, reason: string): void;
  terminate(): void;
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): void;
  on(event: 'pong' | 'close', listener: () => void): void;
}

const maxQueuedCommands = 100;
/** Maximum time for a peer to complete the closing handshake. */
const closeTimeoutMs = 1_000;

/** Returns the HTTP operation whose rule authorises a command. */
const findOperation = ({ method }: Command) =>
  method.startsWith('subscription.') ? streamThreadEvents : postThreadCommand;

function serveThreadSocket(socket: Socket, commandContext: CommandContext): void {
  const { agents, request, threadId } = commandContext;
  const { config } = agents;
  let queuedCommands = 0;
  let lastCommand: Promise<void> = Promise.resolve();
  let isAlive = true;

  const send = (message: string) => new Promise<void>((resolve) => socket.send(message, () => resolve()));

  function close(code: number, reason: string): void {
    socket.close(code, reason);
    setTimeout(() => socket.terminate(), closeTimeoutMs).unref();
  }

  const subscriptions = new ThreadSubscriptions({
    agents,
    threadId,
    send,
    async onFailure(err) {
      request.log.warn({ err }, 'subscriptions failed');
      await send(JSON.stringify(buildStreamFailure(err)));
      close(1011, toStreamError(err).error);
    },
  });
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
    clearInterval(pingTimer);
    stopping.removeEventListener('abort', stop);
    accessEnded?.removeEventListener('abort', closeWithoutAccess);
    subscriptions.close();
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

  async function handleMessage(data: Buffer, isBinary: boolean, memory: MessageMemory): Promise<void> {
    let id: number | null = null;
    let begin: (() => void) | undefined;
    let accessError: RunlakeError | undefined;
    try {
      if (isBinary) throw new CommandRejectedError('invalid_argument', 'Messages must be text, not binary.');
      const readResult = readCommand(parseJsonBody(data, config.maxJsonDepth, memory));
      if ('errorResponse' in readResult) return await send(JSON.stringify(readResult.errorResponse));
      const { command } = readResult;
      id = command.id;
      const caller = await request.access?.renew().catch((err) => {
        if (isAccessError(err)) accessError = err;
        throw err;
      });
      const input = { params: { thread_id: threadId }, body: command };
      const commandResponse = await executeRequestPart(request, findOperation(command), input, ({ body, access }) =>
        handleCommand({ ...commandContext, ...(caller && { caller }), ...(access && { access }) }, body, {
          'subscription.subscribe': async (_context, params) => {
            const newSubscription = await subscriptions.subscribe(params);
            begin = newSubscription.begin;
            return { subscription_id: newSubscription.id };
          },
          'subscription.unsubscribe': async (_context, params) => {
            subscriptions.unsubscribe(params);
            return {};
          },
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
}

export const openThreadSocket = defineAgentOperation({
  operationId: 'openThreadSocket',
  method: 'GET',
  path: '/threads/:thread_id/stream/events',
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
