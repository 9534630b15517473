import type { Readable } from 'node:stream';
import { ClickHouseError } from '@clickhouse/client';
import { chunksOf } from './chunks-of.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly stream: Readable;
}

/**
 * Reads an answer to its end. Whether it is a failure is told by its status, by the header that carries ClickHouse's error
 * number, or by an exception at the end of the body, which ClickHouse 25.11 and later write when they fail after the status
 * went out: `__exception__`, the tag of the header, the text, its length, the tag, `__exception__`. (Before, there is none,
 * and `wait_end_of_query` alone keeps failures out of bodies.)
 *
 * @throws ClickHouseError, with ClickHouse's number or, where something between us answered, `HTTP <status>` as its code.
 */
export async function readAnswer(answer: Answer): Promise<Buffer> {
  const { headers, stream } = answer;
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of chunksOf(stream)) chunks.push(chunk);
  } catch (error) {
    // ClickHouse also breaks the connection off after such an exception; the exception says more.
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

/** The code of a failure that was known before the body began. */
export function codeInHead({ status, headers }: Answer): string | undefined {
  const number = headers['x-clickhouse-exception-code'];
  if (typeof number === 'string') return number;
  return status < 200 || status > 299 ? `HTTP ${status}` : undefined;
}

const marker = '__exception__';

/** ClickHouse cuts the text off well before. */
export const longestExceptionBytes = 32 * 1024;

/** @param body at least its last {@link longestExceptionBytes}. @throws ClickHouseError for the exception that it ends with. */
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

/** The text begins with `Code: 60. DB::Exception: ` and ends with `(UNKNOWN_TABLE) (version 26.7.2.1)`, mostly. */
function serverError(text: string, code: string): ClickHouseError {
  const type = /\(([A-Z][A-Z0-9_]{2,})\)(?: \(version [^)]*\))?\s*\d*\s*$/.exec(text)?.[1];
  return new ClickHouseError({ message: text.trim().slice(0, 2_000), code, ...(type === undefined ? {} : { type }) });
}
