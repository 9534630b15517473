import { randomUUID } from 'node:crypto';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { addAbortSignal, Readable } from 'node:stream';
import { ClickHouseLogLevel, type ClickHouseSettings, createClient } from '@clickhouse/client';
import type { HttpResponse } from './answer.ts';
import type { ExternalTable, QueryParameter } from './clickhouse.ts';

export interface ConnectionOptions {
  /** `http(s)://user:password@host:port/database`; without a path the database `default`. */
  readonly address: URL;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Maximum number of concurrent requests; further ones wait. Default: no limit. */
  readonly maxConnections?: number;
}

export interface Connection {
  /**
   * Sends one statement and resolves when the response headers have arrived. The connection is in use until the response
   * stream is read or destroyed. Aborting the signal also destroys the stream.
   *
   * @throws the network error, or an error because of `signal`.
   */
  send(request: ConnectionRequest): Promise<HttpResponse>;
  /** Closes all connections, including those in use. */
  close(): Promise<void>;
}

export interface ConnectionRequest {
  readonly sql: string;
  readonly queryId: string;
  readonly settings: ClickHouseSettings;
  readonly params?: Readonly<Record<string, QueryParameter>> | undefined;
  /** Sent with Content-Length; the statement is then sent in the URL. */
  readonly body?: RequestBody | undefined;
  readonly signal: AbortSignal;
}

export interface RequestBody {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Connections are closed earlier if the server announces a shorter time in its header `Keep-Alive`. */
const maxConnectionIdleMs = 20_000;

/**
 * Keep-alive connections to ClickHouse's HTTP interface, over the official client. Requests are never retried here.
 *
 * Every statement goes through `exec`, the method that leaves the response undecoded: Runlake reads raw formats, needs
 * the status of error responses, and streams results into files.
 */
export function openConnection({ address, authorities, maxConnections = Infinity }: ConnectionOptions): Connection {
  const client = createClient({
    url: address.origin,
    username: decodeURIComponent(address.username) || 'default',
    password: decodeURIComponent(address.password),
    database: decodeURIComponent(address.pathname.slice(1)) || 'default',
    application: 'runlake',
    // Off: each request has its own timeout, which its signal enforces.
    request_timeout: 0,
    // The agent closes idle connections. The client would do it with a timer that keeps running if a waiting request is
    // aborted, and that then closes the connection under another request.
    keep_alive: { enabled: true, idle_socket_ttl: 0 },
    // The `tls` option of the client sends the password in a header that cannot hold all characters.
    http_agent: new (address.protocol === 'https:' ? HttpsAgent : HttpAgent)({
      keepAlive: true,
      timeout: maxConnectionIdleMs,
      maxSockets: maxConnections,
      ...(authorities && { ca: [...authorities] }),
    }),
    // The callers log errors.
    log: { level: ClickHouseLogLevel.OFF },
  });
  return {
    async send({ sql, queryId, settings, params, body, signal }) {
      const { stream, response_headers, http_status_code } = await client.exec({
        query: sql,
        query_id: queryId,
        clickhouse_settings: settings,
        ...(params && { query_params: { ...params } }),
        ...(body && {
          values: Readable.from([body.bytes], { objectMode: false }),
          http_headers: { 'content-type': body.contentType, 'content-length': String(body.bytes.length) },
        }),
        abort_signal: signal,
        ignore_error_response: true,
      });
      // The reader gets errors from the stream. This listener covers streams that are abandoned early, when no reader
      // listens any more.
      stream.on('error', () => {});
      // The client observes the signal only until the headers arrive.
      addAbortSignal(signal, stream);
      return { status: http_status_code ?? 0, headers: response_headers, stream };
    },
    close: () => client.close(),
  };
}

/**
 * Encodes a table that is sent with a query, as a file of a multipart form.
 * Source: ClickHouse documentation, "External data for query processing".
 */
export function encodeExternalTable({ name, structure, rows }: ExternalTable): {
  readonly body: RequestBody;
  readonly settings: ClickHouseSettings;
} {
  const boundary = `runlake-${randomUUID()}`;
  const head = `--${boundary}\r\nContent-Disposition: form-data; name="${name}"; filename="${name}"\r\n\r\n`;
  const values = rows.map((row) => row.join('\t')).join('\n');
  return {
    body: {
      bytes: Buffer.from(`${head}${values}\r\n--${boundary}--\r\n`),
      contentType: `multipart/form-data; boundary=${boundary}`,
    },
    // These are not settings, but ClickHouse reads them from the URL parameters, like settings.
    settings: { [`${name}_structure`]: structure, [`${name}_format`]: 'TabSeparated' } as ClickHouseSettings,
  };
}
