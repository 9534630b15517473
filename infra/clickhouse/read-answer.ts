import type { Readable } from 'node:stream';
import { parseError } from '@clickhouse/client';

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/**
 * Reads an answer to its end.
 *
 * @throws ClickHouseError where the body ends in the exception that ClickHouse writes when it fails after the status
 *   went out: `__exception__`, the tag of the header, the text, its length, the tag, `__exception__`
 *   (ClickHouse 25.11 and later; before, `wait_end_of_query` alone keeps failures out of bodies).
 */
export async function readAnswer(stream: Readable, headers: Headers, signal: AbortSignal): Promise<Buffer> {
  // Listens itself: the client forgets the signal as soon as the headers are there.
  const stop = () => stream.destroy(signal.reason);
  signal.addEventListener('abort', stop, { once: true });
  const chunks: Buffer[] = [];
  try {
    signal.throwIfAborted();
    for await (const chunk of stream) chunks.push(chunk as Buffer);
  } catch (error) {
    // ClickHouse also breaks the connection off after such an exception; the exception says more.
    throwExceptionIn(Buffer.concat(chunks.slice(-2)), headers['x-clickhouse-exception-tag']);
    throw error;
  } finally {
    stream.destroy();
    signal.removeEventListener('abort', stop);
  }
  const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  throwExceptionIn(body, headers['x-clickhouse-exception-tag']);
  return body;
}

const marker = '__exception__';

function throwExceptionIn(body: Buffer, tag: string | string[] | undefined): void {
  if (typeof tag !== 'string') return;
  const end = Buffer.from(`${tag}\r\n${marker}\r\n`);
  if (!body.subarray(-end.length).equals(end)) return;
  const start = body.lastIndexOf(`${marker}\r\n${tag}\r\n`);
  if (start >= 0)
    throw parseError(body.toString('utf8', start + marker.length + tag.length + 4, body.length - end.length));
}
