/**
 * Sends a proxied request to a replica.
 *
 * Invariant: a request is processed by at most one replica, unless its method is idempotent.
 *
 *   1. `replicas` returns the address of a replica that answers.
 *   2. The request is sent there. Its body is streamed.
 *   3. If the replica refused the request before it processed it, the next replica gets it, with the same body. This
 *      applies to connections that cannot be opened, and to replicas that are starting or draining. It also applies to
 *      broken connections if the method is idempotent.
 *   4. Otherwise the response, whatever its status, is the response to the client. If the client disconnects before
 *      that, the request to the replica is cancelled.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, type Dispatcher } from 'undici';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { ReplicaFinder } from '../../pipelines/deployments/find-replica-url.ts';
import { refusalHeader } from '../server/error-response.ts';
import type { RequestBody } from './request-body.ts';

/** One request of a client. */
export interface ProxiedRequest {
  readonly slug: string;
  readonly replicas: ReplicaFinder;
  /** Unset if the request has no body. */
  readonly body: RequestBody | undefined;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Returns the headers that the client gets, from those of the replica at `replicaUrl`. */
  rewriteHeaders(
    response: { readonly status: number; readonly headers: IncomingHttpHeaders },
    replicaUrl: string,
  ): object;
}

const connectTimeoutMs = 3_000;
/** Maximum number of replicas that get the same request. */
const maxAttempts = 4;
/** Methods that may be sent again after a broken connection. Source: RFC 9110, 9.2.2. */
const idempotentMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'TRACE']);

/** Codes of errors that occur before any byte of a request is sent. */
const connectErrorCodes: ReadonlySet<string> = new Set([
  ...['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENOTFOUND', 'EAI_AGAIN'],
  'UND_ERR_CONNECT_TIMEOUT',
]);
/** Codes of errors of a connection on which the request may have been sent. */
const brokenConnectionCodes: ReadonlySet<string> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);

/**
 * The dispatcher of `@fastify/reply-from` for the requests of {@link ReplicaDispatcher.run}. The plugin does not pass
 * the request on to its dispatcher, so an AsyncLocalStorage passes it.
 */
export class ReplicaDispatcher {
  readonly #requests = new AsyncLocalStorage<ProxiedRequest>();
  /** The number of connections is not limited, because each open stream has one. */
  readonly #agent = new Agent({
    headersTimeout: 0,
    bodyTimeout: 0,
    pipelining: 1,
    connect: { timeout: connectTimeoutMs },
  });

  /** Runs `work`, which calls `reply.from` for the request. */
  run<Result>(request: ProxiedRequest, work: () => Result): Result {
    return this.#requests.run(request, work);
  }

  /** Called by the plugin. The origin in `options` is ignored. */
  request(
    options: Dispatcher.RequestOptions,
    callback: (error: Error | null, response?: Dispatcher.ResponseData) => void,
  ): void {
    const request = this.#requests.getStore() as ProxiedRequest;
    this.#send(request, options)
      .finally(() => request.body?.stopKeeping())
      .then(
        (response) => callback(null, response),
        (error: Error) => callback(error),
      );
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #send(
    { slug, replicas, body, signal, rewriteHeaders }: ProxiedRequest,
    options: Dispatcher.RequestOptions,
  ): Promise<Dispatcher.ResponseData> {
    const tried = new Set<string>();
    for (;;) {
      signal.throwIfAborted();
      const { url } = await replicas.find(slug, { avoid: tried, signal });
      // A read that the previous attempt started may have exceeded the limit of the body meanwhile.
      if (body?.canRestart === false) throw runlakeError('DEPLOYMENT_NOT_SERVING', { deployment: slug });
      tried.add(url);
      const mayRetry = () => tried.size < maxAttempts && !signal.aborted && body?.canRestart !== false;
      try {
        // The type lacks async iterables, which undici documents as bodies.
        const chunks = (body?.read() ?? null) as Buffer | null;
        const response = await this.#agent.request({ ...options, origin: url, body: chunks, signal });
        const { statusCode: status, headers } = response;
        if (headers[refusalHeader] === undefined || !mayRetry())
          return Object.assign(response, { headers: rewriteHeaders({ status, headers }, url) });
        await response.body.dump();
      } catch (error) {
        if (signal.aborted || isRunlakeError(error)) throw error;
        const isSafe = isConnectError(error) || (isBroken(error) && idempotentMethods.has(options.method));
        if (!isSafe || !mayRetry())
          throw runlakeError('DEPLOYMENT_NOT_SERVING', { deployment: slug }, { cause: error });
      }
    }
  }
}

/** Returns whether the connection to a replica failed before the request was sent. */
export function isConnectError(error: unknown): boolean {
  return connectErrorCodes.has(String((error as NodeJS.ErrnoException).code));
}

function isBroken(error: unknown): boolean {
  return brokenConnectionCodes.has(String((error as NodeJS.ErrnoException).code));
}
