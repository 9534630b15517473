import { randomUUID } from 'node:crypto';
import { Agent } from 'node:https';
import { addAbortSignal, Readable } from 'node:stream';
import { ClickHouseLogLevel, type ClickHouseSettings, createClient } from '@clickhouse/client';
import type { Answer } from './answer.ts';
import type { ExternalTable, QueryParameter } from './clickhouse.ts';

export interface ConnectionOptions {
  /** `http(s)://user:password@host:port/database`; without a path the database `default`. */
  readonly address: URL;
  /** Certificate authorities to trust, in PEM. */
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
  send(request: ConnectionRequest): Promise<Answer>;
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
    max_open_connections: maxConnections,
    // Off: each request has its own timeout, which its signal enforces.
    request_timeout: 0,
    // A busy event loop delays the timers that close idle connections.
    keep_alive: { enabled: true, eagerly_destroy_stale_sockets: true },
    // Errors are logged by the callers.
    log: { level: ClickHouseLogLevel.OFF },
    // The `tls` option of the client sends the password in a header that cannot hold all characters.
    ...(authorities &&
      address.protocol === 'https:' && {
        http_agent: new Agent({ keepAlive: true, maxSockets: maxConnections, ca: [...authorities] }),
      }),
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
