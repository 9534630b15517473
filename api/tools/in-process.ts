/**
 * Requests to the main API of this process, without a network connection. They pass the same steps as all other
 * requests. The messages are those of Node's HTTP server, without its connection: `inject` takes 0.5 ms more for each
 * request, also because its messages have other shapes, for which V8 runs the steps of all requests more slowly.
 */
import { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { FastifyInstance } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { getTenantContext, runUntilAborted, unreservedTextBytes } from '../../infra/fairness/tenant-context.ts';
import type { BodyBudget } from '../../pipelines/ingest/body/body-budget.ts';
import type { SendToMainApi } from './main-api.ts';

/**
 * The connection of one request. It stores what the server sends: UTF-8 text and bytes, after one head. It breaks if the
 * server sends more than `maxBytes`.
 */
class StoringSocket extends Writable {
  readonly remoteAddress = '127.0.0.1';
  /** Number of bytes that were sent; of texts, the number of characters. */
  sentBytes = 0;
  readonly #maxBytes: number;
  readonly #sent: (string | Buffer)[] = [];

  constructor(maxBytes: number) {
    // Never full: Node's HTTP server emits `drain` on responses; nothing does here.
    super({ decodeStrings: false, highWaterMark: Number.MAX_SAFE_INTEGER });
    this.#maxBytes = maxBytes;
  }

  override _write(chunk: string | Buffer, _encoding: string, done: (error?: Error) => void): void {
    this.sentBytes += chunk.length;
    if (this.sentBytes > this.#maxBytes) {
      this.#sent.length = 0;
      done(runlakeError('TOOL_ANSWER_TOO_LARGE', { limitBytes: this.#maxBytes }));
      return;
    }
    this.#sent.push(chunk);
    done();
  }

  /** Returns the body of the response. The server sends the head together with the beginning of a text. */
  readBody(): string {
    const sent = this.#sent.every((chunk) => typeof chunk === 'string')
      ? this.#sent.join('')
      : Buffer.concat(this.#sent.map((chunk) => Buffer.from(chunk as string))).toString();
    return sent.slice(sent.indexOf('\r\n\r\n') + 4);
  }
}

/**
 * @param server a server that is ready.
 * @param authority host and port of the main API, for links in its responses.
 * @param maxResponseBytes maximum size of a response: lists of examples are not limited, and a response is in memory
 *   as a whole.
 * @param budget memory for large responses. They count until the call of the tool ends, which aborts the signal. They are
 *   not part of the response to the client, whose connection may be closed if another organisation needs its memory.
 * @returns a function that throws TOOL_ANSWER_TOO_LARGE for a larger response, and OVERLOADED if there is no memory for it.
 */
export function sendInProcess(
  server: Pick<FastifyInstance, 'routing'>,
  authority: string,
  { maxResponseBytes, budget }: { readonly maxResponseBytes: number; readonly budget: Pick<BodyBudget, 'open'> },
): SendToMainApi {
  return ({ method, url, headers, body, signal }) =>
    runUntilAborted(signal, async () => {
      const socket = new StoringSocket(maxResponseBytes);
      // Without a listener, the error would end the process. It is thrown below.
      socket.once('error', () => undefined);
      const request = Object.assign(new IncomingMessage(socket as unknown as Socket), {
        method,
        url,
        headers: {
          host: authority,
          ...headers,
          ...(body !== undefined && { 'content-length': String(Buffer.byteLength(body)) }),
        },
        // The body of a response to HTTP/1.0 is not divided into chunks.
        httpVersion: '1.0',
        httpVersionMajor: 1,
        httpVersionMinor: 0,
        complete: true,
      });
      if (body !== undefined) request.push(body);
      request.push(null);
      const response = new ServerResponse(request);
      response.assignSocket(socket as unknown as Socket);
      // The response is closed with its socket.
      response.once('finish', () => socket.end());
      server.routing(request, response);
      await finished(response).catch((error: unknown) => {
        throw socket.errored ?? error;
      });
      if (socket.errored !== null) throw socket.errored;
      if (socket.sentBytes > unreservedTextBytes) reserveUntilAborted(budget, 2 * socket.sentBytes, signal);
      return { status: response.statusCode, text: socket.readBody() };
    });
}

/** @throws OVERLOADED; the reason of `signal` if it is aborted already. */
function reserveUntilAborted(budget: Pick<BodyBudget, 'open'>, bytes: number, signal: AbortSignal): void {
  signal.throwIfAborted();
  const share = budget.open(getTenantContext()?.organizationId ?? '', () => undefined);
  share.waitsForClient = false;
  signal.addEventListener('abort', () => share.close(), { once: true });
  share.takePage(0, bytes);
}
