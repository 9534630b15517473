import { Pool } from 'undici';
import type { Answer } from './read-answer.ts';

export interface ConnectionOptions {
  /** `http(s)://user:password@host:port`; path and query are ignored. */
  readonly address: URL;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Maximum number of concurrent requests; further ones wait. Default: no limit. */
  readonly maxConnections?: number;
}

export interface Connection {
  /**
   * Sends one POST and resolves when the response headers have arrived. The connection is in use until the response
   * stream is read or destroyed. Aborting the signal also destroys the stream.
   *
   * @throws the network error, or the reason of `signal`.
   */
  send(request: ConnectionRequest): Promise<Answer>;
  /** Closes all connections, including those in use. */
  close(): Promise<void>;
}

export interface ConnectionRequest {
  /** Query string, without the question mark. */
  readonly search: string;
  /** Sent with Content-Length. */
  readonly body: Uint8Array | string;
  readonly contentType?: string | undefined;
  readonly signal: AbortSignal;
}

/**
 * ClickHouse announces its keep-alive timeout (30 s by default, 3 s in older releases); the client closes the
 * connection 1 s earlier.
 */
const keepAliveThresholdMs = 1_000;

/**
 * Keep-alive connections to ClickHouse's HTTP interface. Requests are never retried here.
 *
 * The official client waits for a timer before each request and wraps each response in streams, which took 4 of the 10
 * ms of a usage query (docs/decisions/0031), so it is not used here.
 */
export function openConnection({ address, authorities, maxConnections }: ConnectionOptions): Connection {
  const user = decodeURIComponent(address.username) || 'default';
  const password = decodeURIComponent(address.password);
  const headers = {
    'user-agent': 'runlake',
    authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
  };
  const pool = new Pool(address.origin, {
    connections: maxConnections ?? null,
    keepAliveTimeoutThreshold: keepAliveThresholdMs,
    // Each request has its own timeout, which its signal enforces.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: 0, ...(authorities && address.protocol === 'https:' && { ca: [...authorities] }) },
  });
  return {
    async send({ search, body, contentType, signal }) {
      const answer = await pool.request({
        method: 'POST',
        path: `/?${search}`,
        headers: contentType === undefined ? headers : { ...headers, 'content-type': contentType },
        body,
        signal,
      });
      // The reader gets errors from the stream. This listener covers streams that are abandoned early, when no reader
      // listens any more.
      answer.body.on('error', () => {});
      return { status: answer.statusCode, headers: answer.headers, stream: answer.body };
    },
    close: () => pool.destroy(),
  };
}
