import { Pool } from 'undici';
import type { Answer } from './read-answer.ts';

export interface ConnectionOptions {
  /** `http(s)://user:password@host:port`; the rest of the address is not looked at. */
  readonly address: URL;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Most exchanges at once; further ones wait for one to end. */
  readonly maxConnections: number;
}

export interface Connection {
  /**
   * One POST. The answer is there with its headers; its stream holds the connection until it is read or destroyed. Aborting the
   * signal ends the stream, too.
   *
   * @throws Whatever the network failed with, or the reason of `signal`.
   */
  send(request: ConnectionRequest): Promise<Answer>;
  /** Ends all connections, also those in use. */
  close(): Promise<void>;
}

export interface ConnectionRequest {
  /** Of the address, without the question mark. */
  readonly search: string;
  /** Sent with its length. */
  readonly body: Uint8Array | string;
  readonly contentType?: string | undefined;
  readonly signal: AbortSignal;
}

/** ClickHouse tells how long it keeps an idle connection (30 s by default, 3 s in older releases); we let go a second before. */
const keepAliveThresholdMs = 1_000;

/**
 * Connections to ClickHouse's HTTP interface, kept alive and used again. Nothing is sent twice by itself.
 *
 * The official client is not used for this: it waits for a timer before each request and wraps each answer in streams, which was
 * 4 of the 10 ms of a usage query (docs/decisions/0031).
 */
export function openConnection({ address, authorities, maxConnections }: ConnectionOptions): Connection {
  const user = decodeURIComponent(address.username) || 'default';
  const password = decodeURIComponent(address.password);
  const headers = {
    'user-agent': 'runlake',
    authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`,
  };
  const pool = new Pool(address.origin, {
    connections: maxConnections,
    keepAliveTimeoutThreshold: keepAliveThresholdMs,
    // Each exchange has a time of its own, of which its signal tells.
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
      // Who reads it hears of its failure there. Given up before its end it fails too, and nobody may be listening any more.
      answer.body.on('error', () => {});
      return { status: answer.statusCode, headers: answer.headers, stream: answer.body };
    },
    close: () => pool.destroy(),
  };
}
