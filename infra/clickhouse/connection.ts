import { randomUUID } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { addAbortSignal, finished, PassThrough, Readable } from 'node:stream';
import {
  ClickHouseError,
  ClickHouseLogLevel,
  type ClickHouseSettings,
  createClient,
  extractErrorAtTheEndOfChunk,
  parseError,
} from '@clickhouse/client';
import { runlakeError } from '../errors/runlake-error.ts';
import { workFileError } from '../errors/work-file-error.ts';
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

/**
 * A response of ClickHouse. Three things mark it as an error: the status, the header with ClickHouse's error number, or
 * an exception at the end of the body. ClickHouse 25.11 and later write that exception if a query fails after the
 * status was sent. (Earlier releases write none; only `wait_end_of_query` keeps errors out of their bodies.)
 */
export interface HttpResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly stream: Readable;
}

/**
 * Reads a response to its end.
 *
 * @throws ClickHouseError, with ClickHouse's number as its code, or `HTTP <status>` if a proxy sent the response.
 */
export async function readResponse(answer: HttpResponse): Promise<Buffer> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of readChunks(answer.stream)) chunks.push(chunk);
  } catch (error) {
    // ClickHouse also closes the connection after such an exception, which is the more specific error.
    throwExceptionIn(Buffer.concat(chunks.slice(-2)), answer);
    throw error;
  } finally {
    answer.stream.destroy();
  }
  const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  if (isFailed(answer)) throw toServerError(body.toString('utf8'), answer);
  throwExceptionIn(body, answer);
  return body;
}

/** Last bytes of a complete Parquet file. Source: the Parquet format. */
const parquetMagic = Buffer.from('PAR1');

/**
 * Writes the body of a response to a file while it arrives; it reads more from the connection only after the previous
 * bytes are written. A body without a Parquet footer is also an error: servers before 25.11 end a body like that if the
 * query fails midway. After an error the caller must remove the file.
 *
 * @throws ClickHouseError, WORK_FILE_UNUSABLE, the reason of `signal`, or the network error.
 */
export async function saveResponse(
  answer: HttpResponse,
  path: string,
  signal: AbortSignal,
): Promise<{ bytes: number }> {
  if (isFailed(answer)) await readResponse(answer);
  let file: FileHandle | undefined;
  let tail: Buffer = Buffer.alloc(0);
  let bytes = 0;
  try {
    signal.throwIfAborted();
    file = await wrapDiskErrors(path, () => open(path, 'w', 0o600));
    try {
      for await (const chunk of readChunks(answer.stream)) {
        await wrapDiskErrors(path, () => (file as FileHandle).appendFile(chunk));
        bytes += chunk.length;
        tail = chunk.length >= maxExceptionBytes ? chunk : appendToTail(tail, chunk);
      }
    } finally {
      // As in `readResponse`.
      throwExceptionIn(tail, answer);
    }
    signal.throwIfAborted();
    if (!tail.subarray(-parquetMagic.length).equals(parquetMagic)) throw runlakeError('CLICKHOUSE_UNAVAILABLE');
    await wrapDiskErrors(path, () => (file as FileHandle).close());
    return { bytes };
  } finally {
    answer.stream.destroy();
    // No effect if the file is already closed.
    await file?.close().catch(() => {});
  }
}

/** Bytes that are buffered for a slow reader before the stream is paused. */
const maxBufferedBytes = 1024 * 1024;

/**
 * Yields all received chunks of a body. If the body failed, then throws its error. Iterating the stream directly would
 * drop unread chunks when the connection breaks, and with them the exception that ClickHouse writes at the end.
 *
 * @throws the error of the stream, including one from before the iteration, or an error if the stream closed prematurely.
 */
export async function* readChunks(stream: Readable): AsyncGenerator<Buffer> {
  const received = new PassThrough({ highWaterMark: maxBufferedBytes });
  let failure: unknown;
  // Also called for a stream that has already ended.
  finished(stream, (error) => {
    failure = error ?? undefined;
    received.end();
  });
  stream.pipe(received, { end: false });
  yield* received;
  if (failure !== undefined) throw failure;
}

function isFailed({ status, headers }: HttpResponse): boolean {
  return headers['x-clickhouse-exception-code'] !== undefined || status < 200 || status > 299;
}

/** ClickHouse truncates the text well below this size. */
const maxExceptionBytes = 32 * 1024;

/** @param body at least its last {@link maxExceptionBytes}. @throws ClickHouseError if the body ends with an exception. */
function throwExceptionIn(body: Buffer, { headers }: HttpResponse): void {
  const tag = headers['x-clickhouse-exception-tag'];
  if (typeof tag !== 'string') return;
  const end = Buffer.from(`${tag}\r\n__exception__\r\n`);
  if (body.subarray(-end.length).equals(end)) throw extractErrorAtTheEndOfChunk(body, tag);
}

function toServerError(text: string, { status, headers }: HttpResponse): ClickHouseError {
  const parsed = parseError(text);
  if (parsed instanceof ClickHouseError) return parsed;
  const number = headers['x-clickhouse-exception-code'];
  const code = typeof number === 'string' ? number : `HTTP ${status}`;
  return new ClickHouseError({ message: text.trim().slice(0, 2_000), code });
}

function appendToTail(tail: Buffer, chunk: Buffer): Buffer {
  return Buffer.concat([tail.subarray(-maxExceptionBytes), chunk]);
}

async function wrapDiskErrors<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw workFileError(path, error);
  }
}
