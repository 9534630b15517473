import { isUtf8 } from 'node:buffer';
import { fault } from '../../infra/errors/runlake-error.ts';

/**
 * Reads a JSON body. Keys named `__proto__` become ordinary own properties, as `JSON.parse` has it. An empty body is undefined.
 *
 * @throws INVALID_UTF8, TOO_DEEP, INVALID_JSON; each names the byte or the limit.
 */
export function parseJsonBody(body: Buffer, maxDepth: number): unknown {
  if (body.length === 0) return undefined;
  if (!isUtf8(body)) throw fault('INVALID_UTF8', { part: 'body', offset: firstInvalidByte(body) });
  checkDepth(body, maxDepth);
  const text = body.toString('utf8');
  try {
    return JSON.parse(text);
  } catch (cause) {
    const { offset, reason } = placeOf(cause, text);
    throw fault('INVALID_JSON', { part: 'body', offset, reason }, { cause });
  }
}

/** The length of the longest prefix that is UTF-8, found by halving. */
function firstInvalidByte(body: Buffer): number {
  let valid = 0;
  let invalid = body.length;
  while (invalid - valid > 1) {
    const middle = (valid + invalid) >>> 1;
    // A cut inside a character looks invalid, but only within three bytes of it: the result is off by those at most.
    if (isUtf8(body.subarray(0, middle))) valid = middle;
    else invalid = middle;
  }
  return valid;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Recursive code behind us, such as `JSON.stringify`, must not meet a nesting that overflows its stack. */
function checkDepth(body: Buffer, maxDepth: number): void {
  let depth = 0;
  for (let at = 0; at < body.length; at++) {
    const byte = body[at];
    if (byte === QUOTE) {
      for (at++; at < body.length && body[at] !== QUOTE; at++) if (body[at] === BACKSLASH) at++;
    } else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > maxDepth) {
        throw fault('TOO_DEEP', { part: 'body', limitDepth: maxDepth, limit: 'RUNLAKE_MAX_JSON_DEPTH' });
      }
    } else if (byte === 0x7d || byte === 0x5d) depth--;
  }
}

/** The engine tells the place only in its message, and not always. */
function placeOf(cause: unknown, text: string): { offset: number; reason: string } {
  const message = cause instanceof Error ? cause.message : '';
  const position = /at position (\d+)/.exec(message)?.[1];
  if (position !== undefined) {
    const offset = Buffer.byteLength(text.slice(0, Number(position)));
    return { offset, reason: message.replace(/,? "[\s\S]*$| (?:in JSON )?at position[\s\S]*$/, '').trim() };
  }
  if (/end of JSON/i.test(message)) return { offset: Buffer.byteLength(text), reason: 'unexpected end' };
  return { offset: 0, reason: 'not a JSON value' };
}
