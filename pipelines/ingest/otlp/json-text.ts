import { isUtf8 } from 'node:buffer';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { type OnValue, scanJson } from '../json/scan.ts';
import type { ByteRange } from './span.ts';

const quote = 0x22;
const backslash = 0x5c;
const hexDigits = Buffer.from('0123456789abcdef', 'latin1');
const chunkBytes = 8 * 1024;
/** Maximum length for which a JavaScript loop is faster than a native call. */
const maxLoopBytes = 48;
/** Characters of the short escapes, by control character; 0 if only the form \u00xx exists. */
const shortEscapes = new Uint8Array(32);
for (const [code, character] of [
  [8, 'b'],
  [9, 't'],
  [10, 'n'],
  [12, 'f'],
  [13, 'r'],
] as const) {
  shortEscapes[code] = character.charCodeAt(0);
}

export interface TextMemory {
  /** Maximum size of the text. */
  readonly maxBytes: number;
  /** Called before `bytes` more are allocated; throws if there is no memory for them. */
  readonly reserve?: ((bytes: number) => void) | undefined;
}

/**
 * Writes JSON text into a growing buffer, directly from the bytes of a request. Views returned by {@link since} stay
 * valid, because growth allocates a new buffer and leaves the old one unchanged.
 *
 * Every method that writes throws BODY_TOO_LARGE if the text would exceed its maximum size.
 */
export class JsonText {
  #buffer: Buffer;
  #position = 0;
  readonly #memory: TextMemory;

  constructor(initialBytes: number, memory: TextMemory) {
    this.#memory = memory;
    this.#buffer = Buffer.allocUnsafe(initialBytes);
  }

  get position(): number {
    return this.#position;
  }

  since(start: number): Buffer {
    return this.#buffer.subarray(start, this.#position);
  }

  /** Discards everything that was written after `position`. */
  rewind(position: number): void {
    this.#position = position;
  }

  byte(code: number): void {
    this.#reserve(1);
    this.#buffer[this.#position++] = code;
  }

  /** Writes ASCII text unchanged: punctuation, numbers, literals. */
  ascii(text: string): void {
    const { length } = text;
    this.#reserve(length);
    const target = this.#buffer;
    let at = this.#position;
    if (length > maxLoopBytes) at += target.write(text, at, 'latin1');
    else for (let index = 0; index < length; index++) target[at++] = text.charCodeAt(index);
    this.#position = at;
  }

  /** Copies bytes that are already JSON. */
  copy(source: Uint8Array, start: number, end: number): void {
    this.#reserve(end - start);
    const target = this.#buffer;
    if (end - start > maxLoopBytes) target.set(source.subarray(start, end), this.#position);
    else for (let index = start, at = this.#position; index < end; index++) target[at++] = source[index]!;
    this.#position += end - start;
  }

  /** Writes bytes as a JSON string. Returns false if they are not UTF-8. */
  string(source: Buffer, start: number, end: number): boolean {
    this.byte(quote);
    let isAscii = true;
    for (let from = start; from < end; from += chunkBytes) {
      isAscii = this.#escape(source, from, Math.min(end, from + chunkBytes)) && isAscii;
    }
    this.byte(quote);
    return isAscii || isUtf8(source.subarray(start, end));
  }

  /** Writes a JavaScript string as a JSON string; a lone surrogate is written as an escape sequence. */
  text(value: string): void {
    this.json(JSON.stringify(value));
  }

  /** Writes JSON that is given as a JavaScript string. */
  json(json: string): void {
    this.#reserve(json.length * 3);
    this.#position += this.#buffer.write(json, this.#position, 'utf8');
  }

  /** Writes a signed 64-bit integer with all its digits; the integer is given as two unsigned halves. */
  int64(low: number, high: number): void {
    if (high < 0x20_0000) {
      this.ascii(String(high * 0x1_0000_0000 + low));
      return;
    }
    this.ascii(BigInt.asIntN(64, (BigInt(high) << 32n) | BigInt(low)).toString());
  }

  /** Writes a double; NaN and infinities become strings, because JSON has no numbers for them. */
  double(value: number): void {
    this.ascii(Number.isFinite(value) ? String(value) : `"${value}"`);
  }

  /** Writes bytes with escapes. Returns false if a byte is not ASCII; such bytes are copied. */
  #escape(source: Buffer, start: number, end: number): boolean {
    this.#reserve((end - start) * 6);
    const target = this.#buffer;
    let at = this.#position;
    let seen = 0;
    for (let index = start; index < end; index++) {
      const byte = source[index]!;
      seen |= byte;
      if (byte >= 0x20) {
        if (byte === quote || byte === backslash) target[at++] = backslash;
        target[at++] = byte;
        continue;
      }
      target[at++] = backslash;
      const character = shortEscapes[byte]!;
      if (character !== 0) {
        target[at++] = character;
        continue;
      }
      target.write('u00', at, 'latin1');
      target[at + 3] = hexDigits[byte >> 4]!;
      target[at + 4] = hexDigits[byte & 15]!;
      at += 5;
    }
    this.#position = at;
    return seen < 0x80;
  }

  #reserve(bytes: number): void {
    const needed = this.#position + bytes;
    if (needed <= this.#buffer.length) return;
    const { maxBytes, reserve } = this.#memory;
    if (needed > maxBytes) {
      const limit = 'as JSON, in which every span contains the attributes of its scope and resource';
      throw runlakeError('BODY_TOO_LARGE', { limitBytes: maxBytes, limit });
    }
    const length = Math.min(Math.max(needed, this.#buffer.length * 2), maxBytes);
    // Views keep the old buffer in memory, so the new one counts with its whole length.
    reserve?.(length);
    const larger = Buffer.allocUnsafe(length);
    this.#buffer.copy(larger, 0, 0, this.#position);
    this.#buffer = larger;
  }
}

const openBrace = 0x7b;
const openBracket = 0x5b;

/**
 * Returns the kind of the JSON in a string of the request, if it is a complete object or array that is nested at most
 * `maxDepth` levels deep. Otherwise returns undefined.
 */
export function detectEmbeddedJson(
  source: Buffer,
  start: number,
  end: number,
  maxDepth: number,
  onValue?: OnValue,
): 'object' | 'array' | undefined {
  let first = start;
  while (first < end && source[first]! <= 0x20) first++;
  if (first === end || (source[first] !== openBrace && source[first] !== openBracket)) return undefined;
  if (!isEmbeddedJson(source, start, end, maxDepth, onValue)) return undefined;
  return source[first] === openBrace ? 'object' : 'array';
}

/** Returns whether a string of the request is JSON that is nested at most `maxDepth` levels deep. */
export function isEmbeddedJson(
  source: Buffer,
  start: number,
  end: number,
  maxDepth: number,
  onValue?: OnValue,
): boolean {
  try {
    scanJson(source, start, end, { part: 'an attribute', maxDepth }, onValue);
    return true;
  } catch (error) {
    if (isRunlakeError(error)) return false;
    throw error;
  }
}

/** Maximum number of members of an object that are written one by one; a larger object stays text. */
const maxMembers = 10_000;

/**
 * Finds the ranges of the members of a JSON object in a string. If a name is repeated, the last member wins. Returns
 * undefined if the string is not an object or has more than {@link maxMembers}.
 */
export function findEmbeddedMembers(
  source: Buffer,
  start: number,
  end: number,
  maxDepth: number,
): ReadonlyMap<string, ByteRange> | undefined {
  const members = new Map<string, ByteRange>();
  const kind = detectEmbeddedJson(source, start, end, maxDepth, (_, from, to, key) => {
    if (key === undefined) return;
    members.set(key, { start: from, end: to });
    if (members.size > maxMembers)
      throw runlakeError('TOO_MANY_PARTS', { limitParts: maxMembers, limit: 'members of an attribute' });
  });
  return kind === 'object' ? members : undefined;
}
