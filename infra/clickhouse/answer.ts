import { type FileHandle, open } from 'node:fs/promises';
import { finished, PassThrough, type Readable } from 'node:stream';
import { ClickHouseError, extractErrorAtTheEndOfChunk, parseError } from '@clickhouse/client';
import { runlakeError } from '../errors/runlake-error.ts';
import { workFileError } from '../errors/work-file-error.ts';

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
