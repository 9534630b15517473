import { once } from 'node:events';
import { type Agent, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { type GuardOptions, openGuardedAgents } from './guarded-agents.ts';

export interface GuardedFetchOptions extends GuardOptions {
  /** Timeout of a request, including its response. Default: only the signal of the request ends it. */
  readonly timeoutMs?: number;
  readonly maxResponseBytes: number;
  /** Creates the error for a response that is larger than `maxResponseBytes`. */
  readonly refuseSize: (host: string) => Error;
}

/** A `fetch` for libraries that take one. Bodies of requests are texts or `URLSearchParams`. */
export interface GuardedFetch {
  /**
   * Never follows a redirect: each URL of a chain needs its own check, so the caller decides.
   *
   * @throws the errors of the options; errors of Node; `TimeoutError` after the timeout.
   */
  fetch(url: string | URL, init?: RequestInit): Promise<Response>;
  close(): void;
}

const isWithoutBody = (status: number) => status === 204 || status === 205 || status === 304;

/** Opens a `fetch` for hosts that callers specify; see {@link openGuardedAgents}. */
export function openGuardedFetch(options: GuardedFetchOptions): GuardedFetch {
  const { timeoutMs, maxResponseBytes, refuseSize } = options;
  const agents = openGuardedAgents(options);

  async function send(target: string | URL, init: RequestInit = {}): Promise<Response> {
    const signal = AbortSignal.any([
      ...(init.signal ? [init.signal] : []),
      ...(timeoutMs === undefined ? [] : [AbortSignal.timeout(timeoutMs)]),
    ]);
    try {
      const url = new URL(target);
      const agent = url.protocol === 'https:' ? agents.https : agents.http;
      return await sendRequest(url, init, { agent, signal, maxResponseBytes, refuseSize });
    } catch (error) {
      // Node reports an aborted response as a broken connection.
      signal.throwIfAborted();
      throw error;
    }
  }

  return { fetch: send, close: () => agents.close() };
}

/** Sends a request through an agent, and reads the whole response. Never follows a redirect. @throws errors of Node */
export async function sendRequest(
  url: URL,
  init: RequestInit,
  options: Pick<GuardedFetchOptions, 'maxResponseBytes' | 'refuseSize'> & {
    /** Default: the agent of Node. */
    readonly agent?: Agent | undefined;
    readonly signal: AbortSignal;
  },
): Promise<Response> {
  const request = (url.protocol === 'https:' ? requestHttps : requestHttp)(url, {
    method: init.method ?? 'GET',
    headers: Object.fromEntries(new Headers(init.headers)),
    agent: options.agent,
    signal: options.signal,
  });
  // `once` and the loop throw the first error. Without this listener, a later one would end the process.
  request.on('error', () => undefined);
  request.end(init.body == null ? undefined : String(init.body));
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > options.maxResponseBytes) throw options.refuseSize(url.host);
    chunks.push(chunk);
  }
  const headers = new Headers();
  for (const [name, values] of Object.entries(response.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value);
  }
  const status = response.statusCode ?? 0;
  return new Response(isWithoutBody(status) ? null : Buffer.concat(chunks), { status, headers });
}
