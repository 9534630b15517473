import { type FileHandle, open } from 'node:fs/promises';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { addAbortSignal, finished, PassThrough, type Readable } from 'node:stream';
import { ClickHouseError, type ClickHouseSettings, extractErrorAtTheEndOfChunk, parseError } from '@clickhouse/client';
import { runlakeError } from '../errors/runlake-error.ts';
import { toWorkFileError } from '../errors/work-file-error.ts';
import { raceWithAbort } from '../timeouts/with-timeout.ts';
import { encodeForm, type FormQuery, formatParameter, needsForm } from './query-form.ts';

export interface ConnectionOptions {
  /** Address as `http(s)://user:password@host:port/database`. Without a path, it is the default database of the user. */
  readonly address: URL;
  /** Trusted CA certificates in PEM format. */
  readonly authorities?: readonly string[] | undefined;
  /** Maximum number of concurrent requests. Further requests wait. Default: no limit. */
  readonly maxConnections?: number;
}

export interface Connection {
  /**
   * Sends one statement. Resolves when the response headers have been received. The connection is in use until the
   * response stream has been read or destroyed. If the signal is aborted, the stream is also destroyed.
   *
   * @throws the network error, or an error caused by `signal`.
   */
  send(request: ConnectionRequest): Promise<HttpResponse>;
  /** Closes all connections, including those in use. */
  close(): void;
}

export interface ConnectionRequest extends FormQuery {
  readonly queryId: string;
  readonly settings: ClickHouseSettings;
  /** Body of the request, sent with Content-Length. If it is set, the statement is sent in the URL. */
  readonly body?: RequestBody | undefined;
  readonly signal: AbortSignal;
}

export interface RequestBody {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/**
 * Maximum time that a connection stays idle. Connections are closed earlier if the server announces a shorter time in
 * the header `Keep-Alive`.
 */
const maxConnectionIdleMs = 20_000;

/**
 * Opens keep-alive connections to ClickHouse's HTTP interface. This function never retries requests.
 *
 * The official client is not used for requests, because it adds two milliseconds to each, and a page of runs takes eight
 * queries (`docs/decisions/0031-clickhouse-client.md`).
 */
export function openConnection({ address, authorities, maxConnections = Infinity }: ConnectionOptions): Connection {
  const isEncrypted = address.protocol === 'https:';
  const request = isEncrypted ? httpsRequest : httpRequest;
  const agent = new (isEncrypted ? HttpsAgent : HttpAgent)({
    keepAlive: true,
    timeout: maxConnectionIdleMs,
    maxSockets: maxConnections,
    ...(authorities && { ca: [...authorities] }),
  });
  const user = decodeURIComponent(address.username) || 'default';
  const credentials = Buffer.from(`${user}:${decodeURIComponent(address.password)}`).toString('base64');
  const database = decodeURIComponent(address.pathname.slice(1));

  function encodeUrl({ sql, queryId, settings, params = {} }: ConnectionRequest, isSqlInUrl: boolean, isForm: boolean) {
    const url = new URLSearchParams({
      ...(database && { database }),
      query_id: queryId,
      ...(isSqlInUrl && { query: sql }),
    });
    for (const [name, value] of Object.entries(settings)) url.append(name, String(value));
    if (!isForm)
      for (const [name, value] of Object.entries(params)) url.append(`param_${name}`, formatParameter(value));
    return `/?${url}`;
  }

  return {
    async send(statement) {
      const { sql, params, externalTable, body: ownBody, signal } = statement;
      const isForm = ownBody === undefined && needsForm({ params, externalTable });
      const body = ownBody ?? (isForm ? encodeForm({ sql, params, externalTable }) : undefined);
      const response = new Promise<IncomingMessage>((resolve, reject) => {
        const options = {
          agent,
          signal,
          method: 'POST',
          path: encodeUrl(statement, ownBody !== undefined, isForm),
          headers: {
            authorization: `Basic ${credentials}`,
            'user-agent': 'runlake',
            ...(body && { 'content-type': body.contentType }),
          },
        };
        // Errors after the response have no effect here; the reader receives them from the stream.
        request(address.origin, options, resolve)
          .on('error', reject)
          .end(body?.bytes ?? sql);
      });
      // Node ends a request that waits for a connection only when it gets one.
      const stream = await raceWithAbort(response, signal);
      // This listener is for streams that are abandoned early, because nothing reads their errors any more.
      stream.on('error', () => {});
      // The signal of a request is observed only until the headers have been received.
      addAbortSignal(signal, stream);
      return { status: stream.statusCode ?? 0, headers: stream.headers, stream };
    },
    close: () => agent.destroy(),
  };
}

/**
 * A response of ClickHouse. It is an error if the status is an error status, if there is a header with ClickHouse's
 * error number, or if the body ends with an exception. ClickHouse 25.11 and later write such an exception if a query
 * fails after the status was sent. (Earlier releases do not; only `wait_end_of_query` keeps errors out of their
 * bodies.)
 */
export interface HttpResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly stream: Readable;
}

/**
 * Reads a response completely.
 *
 * @throws ClickHouseError, whose code is ClickHouse's number, or `HTTP <status>` if a proxy sent the response.
 */
export async function readResponse(answer: HttpResponse): Promise<Buffer> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of readChunks(answer.stream)) chunks.push(chunk);
  } catch (error) {
    // ClickHouse also closes the connection after such an exception. The exception is the more specific error.
    throwTrailingException(Buffer.concat(chunks.slice(-2)), answer);
    throw error;
  } finally {
    answer.stream.destroy();
  }
  const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  if (isFailed(answer)) throw toServerError(body.toString('utf8'), answer);
  throwTrailingException(body, answer);
  return body;
}

/** Last bytes of a complete Parquet file. Source: Parquet format specification. */
const parquetMagic = Buffer.from('PAR1');

/**
 * Writes the body of a response to a file while it is being received. Reads more from the connection only after the
 * previous bytes have been written. A body without a Parquet footer is also an error, because servers before 25.11 send
 * such a body if the query fails midway. After an error, the caller must remove the file.
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
      // Checks for an exception, as `readResponse` does.
      throwTrailingException(tail, answer);
    }
    signal.throwIfAborted();
    if (!tail.subarray(-parquetMagic.length).equals(parquetMagic)) throw runlakeError('CLICKHOUSE_UNAVAILABLE');
    await wrapDiskErrors(path, () => (file as FileHandle).close());
    return { bytes };
  } finally {
    answer.stream.destroy();
    // Has no effect if the file is already closed.
    await file?.close().catch(() => {});
  }
}

/** Number of bytes that are buffered for a slow reader before the stream is paused. */
const maxBufferedBytes = 1024 * 1024;

/**
 * Yields all received chunks of a response body and, if the stream failed, throws its error after the last chunk.
 * Iterating over the stream directly would drop unread chunks when the connection breaks, and with them the exception
 * that ClickHouse writes at the end of the body.
 *
 * @throws the error of the stream, even if it occurred before the iteration; an error if the stream closed prematurely.
 */
export async function* readChunks(stream: Readable): AsyncGenerator<Buffer> {
  const received = new PassThrough({ highWaterMark: maxBufferedBytes });
  let failure: unknown;
  // The callback is also called for a stream that has already ended.
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

/** Maximum size of an exception. ClickHouse truncates the text well below this size. */
const maxExceptionBytes = 32 * 1024;

/**
 * Checks whether a body ends with an exception.
 *
 * @param body at least the last {@link maxExceptionBytes} of the body.
 * @throws ClickHouseError if the body ends with an exception.
 */
function throwTrailingException(body: Buffer, { headers }: HttpResponse): void {
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
    throw toWorkFileError(path, error);
  }
}
