/**
 * One WebSocket of the event-stream protocol: commands come in, answers and events go out, each a JSON text.
 *
 * Invariant: commands are answered in their order, one each; no more is read from the log than the socket takes; and when the socket
 * is closed, by whomever, every reader of it is closed, too.
 *
 *   1. A message is answered when those before it are; with more than `mostWaiting` of them it is closed.
 *   2. `subscription.subscribe` is answered, then its events follow, from the runs that go on, or the last one. The next event is taken
 *      when the last one was sent.
 *   3. A reader that fails is told of as an error, and closes the socket: clients come back and subscribe again.
 *   4. A peer that answers no ping in time is cut off. A server that stops closes with 1012.
 *   5. The caller is authenticated again for each command. When that fails, or the caller loses access, the socket is closed with 1008
 *      and the code of the error.
 */

import { Type } from 'typebox';
import type { RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { protocolMessage } from '../../../pipelines/agents/protocol/protocol-event.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-ports.ts';
import { isAccessError } from '../../server/access-watch.ts';
import { parseJsonBody } from '../../server/json-body.ts';
import { asOperation } from '../access/as-operation.ts';
import { Closed } from '../agent-schema.ts';
import { errorOfStream } from '../streaming/sse.ts';
import { answerCommand, readCommand } from './answer-command.ts';
import { type Command, type CommandError, CommandRefused, refusalOf } from './command.ts';
import { Filter } from './event-filter.ts';
import { openEvents } from './open-events.ts';
import { type CommandScene, paramsOf } from './run-commands.ts';
import { missingEvents, streamFailure } from './stream-failure.ts';

/** What is used of a socket of `ws`. */
export interface Socket {
  send(text: string, sent: (error?: Error) => void): void;
  ping(): void;
  close(code: number, reason: string): void;
  terminate(): void;
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): void;
  on(event: 'pong' | 'close', listener: () => void): void;
}

const mostSubscriptions = 100;
const mostWaiting = 100;
/** How long a peer has to take its leave. */
const leaveMs = 1_000;

const subscribeParams = paramsOf(Filter);
const unsubscribeParams = paramsOf(Closed({ subscription_id: Type.String({ maxLength: 100 }) }));

/** As which of the requests without a socket a command is. */
const ruleOf = ({ method }: Command) =>
  method.startsWith('subscription.') ? 'streamThreadEvents' : 'postThreadCommand';

export function serveThreadSocket(socket: Socket, scene: CommandScene): void {
  const { agents, request } = scene;
  const { config } = agents;
  const readers = new Map<string, StreamReader>();
  let made = 0;
  let waiting = 0;
  let before: Promise<void> = Promise.resolve();
  let heard = true;
  let closed = false;

  function close(code: number, reason: string): void {
    socket.close(code, reason);
    setTimeout(() => socket.terminate(), leaveMs).unref();
  }

  const stop = () => close(1012, 'DRAINING');
  const stopping = request.server.drainStarted;
  stopping.addEventListener('abort', stop);
  const accessEnded = request.access?.ended;
  const refuse = () => close(1008, errorOfStream(accessEnded?.reason).error);
  accessEnded?.addEventListener('abort', refuse);
  const beat = setInterval(
    () => {
      if (!heard) return socket.terminate();
      heard = false;
      socket.ping();
    },
    Math.max(config.agentsHeartbeatMs * 3, 5_000),
  );
  socket.on('pong', () => {
    heard = true;
  });
  socket.on('close', () => {
    closed = true;
    clearInterval(beat);
    stopping.removeEventListener('abort', stop);
    accessEnded?.removeEventListener('abort', refuse);
    for (const reader of readers.values()) reader.close();
    readers.clear();
  });
  socket.on('message', (data, isBinary) => {
    heard = true;
    if (++waiting > mostWaiting) return close(1008, `more than ${mostWaiting} commands wait`);
    before = before.then(async () => {
      await answer(data, isBinary);
      waiting--;
    });
  });
  if (stopping.aborted) stop();

  const send = (message: string) => new Promise<void>((resolve) => socket.send(message, () => resolve()));

  async function answer(data: Buffer, isBinary: boolean): Promise<void> {
    let id: number | null = null;
    let begin: (() => void) | undefined;
    let accessLost: RunlakeError | undefined;
    try {
      if (isBinary) throw new CommandRefused('invalid_argument', 'A message has to be a text, and not binary.');
      const read = readCommand(parseJsonBody(data, config.maxJsonDepth));
      if ('refusal' in read) return await send(JSON.stringify(read.refusal));
      id = read.command.id;
      const caller = await request.access?.renew().catch((err) => {
        if (isAccessError(err)) accessLost = err;
        throw err;
      });
      const answered = await asOperation(request, ruleOf(read.command), inputOf(read.command), ({ body, access }) =>
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
      const refusal = refusalOf(id, err);
      if (refusal === undefined) request.log.warn({ err }, 'a command failed');
      const failure: CommandError = { type: 'error', id, error: 'unknown_error', message: errorOfStream(err).message };
      await send(JSON.stringify(refusal ?? failure));
      if (accessLost) close(1008, accessLost.code);
    }
  }

  const inputOf = (command: Command) => ({ params: { thread_id: scene.threadId }, body: command });

  async function subscribe(params: unknown): Promise<{ readonly id: string; begin(): void }> {
    if (readers.size >= mostSubscriptions) {
      throw new CommandRefused(
        'invalid_argument',
        `There are ${mostSubscriptions} subscriptions already, as many as may be.`,
      );
    }
    const { reader, filter } = await openEvents(agents, scene.threadId, subscribeParams(params));
    const id = `s${++made}`;
    if (closed) reader.close();
    else readers.set(id, reader);
    const tell = async () => {
      for await (const event of reader) {
        const missing = missingEvents(event);
        if (missing !== undefined) await send(JSON.stringify(missing));
        const message = protocolMessage(event, filter);
        if (message !== undefined) await send(message.text);
      }
    };
    const failed = async (err: unknown) => {
      request.log.warn({ err }, 'a subscription broke off');
      await send(JSON.stringify(streamFailure(err)));
      close(1011, errorOfStream(err).error);
    };
    return { id, begin: () => void tell().catch(failed) };
  }

  function unsubscribe(params: unknown): object {
    const { subscription_id: id } = unsubscribeParams(params);
    const reader = readers.get(id);
    if (reader === undefined) throw new CommandRefused('no_such_subscription', `There is no subscription '${id}'.`);
    readers.delete(id);
    reader.close();
    return {};
  }
}
