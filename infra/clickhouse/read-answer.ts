import type { Readable } from 'node:stream';
import { ClickHouseError } from '@clickhouse/client';
import { chunksOf } from './chunks-of.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly stream: Readable;
}

/**
 * Reads a response to its end. Three things mark it as an error: the status, the header with ClickHouse's error number,
 * or an exception at the end of the body. ClickHouse 25.11 and later write that exception if a query fails after the
 * status was sent: `__exception__`, the tag of the header, the text, its length, the tag, `__exception__`. (Earlier
 * releases write none; only `wait_end_of_query` keeps errors out of their bodies.)
 *
 * @throws ClickHouseError, with ClickHouse's number as its code, or `HTTP <status>` if a proxy sent the response.
 */
export async function readAnswer(answer: Answer): Promise<Buffer> {
  const { headers, stream } = answer;
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of chunksOf(stream)) chunks.push(chunk);
  } catch (error) {
    // ClickHouse also closes the connection after such an exception, which is the more specific error.
    throwExceptionIn(Buffer.concat(chunks.slice(-2)), headers);
    throw error;
  } finally {
    stream.destroy();
  }
  const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  const code = codeInHead(answer);
  if (code !== undefined) throw serverError(body.toString('utf8'), code);
  throwExceptionIn(body, headers);
  return body;
}

/** The error code of a response that failed before its body started. */
export function codeInHead({ status, headers }: Answer): string | undefined {
  const number = headers['x-clickhouse-exception-code'];
  if (typeof number === 'string') return number;
  return status < 200 || status > 299 ? `HTTP ${status}` : undefined;
}

const marker = '__exception__';

/** ClickHouse truncates the text well below this size. */
export const maxExceptionBytes = 32 * 1024;

/** @param body at least its last {@link maxExceptionBytes}. @throws ClickHouseError if the body ends with an exception. */
export function throwExceptionIn(body: Buffer, headers: Answer['headers']): void {
  const tag = headers['x-clickhouse-exception-tag'];
  if (typeof tag !== 'string') return;
  const end = Buffer.from(`${tag}\r\n${marker}\r\n`);
  if (!body.subarray(-end.length).equals(end)) return;
  const head = `${marker}\r\n${tag}\r\n`;
  const start = body.lastIndexOf(head);
  if (start < 0) return;
  const text = body.toString('utf8', start + head.length, body.length - end.length);
  throw serverError(text, /\bCode: (\d+)/.exec(text)?.[1] ?? '0');
}

/** The text usually starts with `Code: 60. DB::Exception: ` and ends with `(UNKNOWN_TABLE) (version 26.7.2.1)`. */
function serverError(text: string, code: string): ClickHouseError {
  const type = /\(([A-Z][A-Z0-9_]{2,})\)(?: \(version [^)]*\))?\s*\d*\s*$/.exec(text)?.[1];
  return new ClickHouseError({ message: text.trim().slice(0, 2_000), code, ...(type === undefined ? {} : { type }) });
}
