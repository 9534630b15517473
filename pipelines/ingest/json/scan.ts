import { isUtf8 } from 'node:buffer';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { ChildCursor, type KeySet, scanAny, skipSpace } from './scan-any.ts';
import { decodeStringBytes } from './scan-string.ts';

export interface ScanOptions {
  /** Name of the text in errors: the name of a part, or `the body`. */
  readonly part: string;
  /** Maximum nesting depth; a scalar has depth 0. */
  readonly maxDepth: number;
  /** Setting that determines `maxDepth`; named in the error. */
  readonly limit?: string | undefined;
  /** Value of this setting, if it differs from `maxDepth`. */
  readonly limitDepth?: number | undefined;
  /**
   * Counts the values below the outermost value: the scan calls `add` for each comma, object and array. An error thrown
   * by `add` ends the scan.
   */
  readonly values?: { add(): void } | undefined;
}

/** The input of a scan: the text in `bytes` from `start` to `end`, and methods that throw the errors of the scan. */
export class ScanInput {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  readonly maxDepth: number;
  readonly values: { add(): void } | undefined;
  readonly #options: ScanOptions;
  #words: Int32Array | undefined;

  /** @throws INVALID_UTF8, and INVALID_JSON for a byte order mark. */
  constructor(bytes: Buffer, start: number, end: number, options: ScanOptions) {
    this.bytes = bytes;
    this.start = start;
    this.end = end;
    this.maxDepth = options.maxDepth;
    this.values = options.values;
    this.#options = options;
    if (!isUtf8(bytes.subarray(start, end))) {
      const offset = findInvalidUtf8(bytes, start, end) - start;
      throw runlakeError('INVALID_UTF8', { part: options.part, offset });
    }
    if (end - start >= 3 && bytes[start] === 0xef && bytes[start + 1] === 0xbb && bytes[start + 2] === 0xbf) {
      this.fail(start, 'a byte order mark is not JSON');
    }
  }

  /** `bytes` viewed as 32-bit words; created on first use. */
  get words(): Int32Array {
    this.#words ??= new Int32Array(this.bytes.buffer, 0, this.bytes.buffer.byteLength >>> 2);
    return this.#words;
  }

  fail(index: number, reason: string): never {
    throw runlakeError('INVALID_JSON', { part: this.#options.part, offset: index - this.start, reason });
  }

  /** Throws INVALID_JSON for the byte at `index`, or for the end of the text. */
  failUnexpected(index: number, expected: string): never {
    if (index >= this.end) this.fail(this.end, `the text ends where ${expected} is expected`);
    return this.fail(index, `${formatByte(this.bytes[index]!)} where ${expected} is expected`);
  }

  failTooDeep(): never {
    const { part, maxDepth, limitDepth = maxDepth, limit = 'the limit of all JSON bodies' } = this.#options;
    throw runlakeError('TOO_DEEP', { part, limitDepth, limit });
  }
}

/** Formats a byte for an error: `'x'` if it is printable, `byte 0x1f` otherwise. */
function formatByte(byte: number): string {
  const isPrintable = byte > 0x20 && byte < 0x7f;
  return isPrintable ? `'${String.fromCharCode(byte)}'` : `byte 0x${byte.toString(16).padStart(2, '0')}`;
}

/**
 * Returns the index of the first byte of the first ill-formed sequence between `start` and `end`; `end` if there is
 * none. The search is exact but slow, so call it only after `isUtf8` has returned false. Source: the Unicode standard,
 * table of well-formed sequences.
 */
export function findInvalidUtf8(bytes: Uint8Array, start: number, end: number): number {
  let index = start;
  while (index < end) {
    const lead = bytes[index]!;
    if (lead < 0x80) {
      index++;
      continue;
    }
    const length = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) === 0xe0 ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (length === 0 || index + length > end) return index;
    const second = bytes[index + 1]!;
    // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF.
    const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    if (second < lowest || second > highest) return index;
    for (let next = index + 2; next < index + length; next++) {
      if ((bytes[next]! & 0xc0) !== 0x80) return index;
    }
    index += length;
  }
  return end;
}

export type JsonKind = 'object' | 'array' | 'string' | 'number' | 'true' | 'false' | 'null';

/** A value in JSON text, without surrounding white space; `end` is exclusive. */
export interface JsonRange {
  readonly kind: JsonKind;
  readonly start: number;
  readonly end: number;
}

const openBrace = 0x7b;
const openBracket = 0x5b;
const quote = 0x22;

/**
 * Called for each member of the outermost object, in order and including repeated keys, or for each item of the
 * outermost array.
 */
export type OnValue = (kind: JsonKind, start: number, end: number, key: string | undefined) => void;

/**
 * Validates that the bytes from `start` to `end` are one JSON value in UTF-8 according to RFC 8259, and returns the
 * range of the value. Accepts the same texts as `JSON.parse`, except for the nesting limit.
 *
 * @throws INVALID_UTF8 and INVALID_JSON with the offset from `start`, TOO_DEEP.
 */
export function scanValue(bytes: Buffer, start: number, end: number, options: ScanOptions): JsonRange {
  const origin = new ScanInput(bytes, start, end, options);
  const first = skipSpace(bytes, start, end);
  const last = scanAny(origin, first, 0);
  requireEnd(origin, last);
  return { kind: classifyByte(bytes[first]!), start: first, end: last };
}

/**
 * Like {@link scanValue}, but calls `onValue` for each child of the outermost object or array during the scan. At that
 * time, the text after the child may still be invalid.
 */
export function scanJson(
  bytes: Buffer,
  start: number,
  end: number,
  options: ScanOptions,
  onValue?: OnValue,
): JsonRange {
  const first = skipSpace(bytes, start, end);
  const isContainer = first < end && (bytes[first] === openBrace || bytes[first] === openBracket);
  if (onValue === undefined || !isContainer) return scanValue(bytes, start, end, options);
  const origin = new ScanInput(bytes, start, end, options);
  const last = scanChildren(origin, first, (keyStart, keyEnd, from, to) => {
    onValue(
      classifyByte(bytes[from]!),
      from,
      to,
      keyEnd > keyStart ? decodeStringBytes(bytes, keyStart, keyEnd) : undefined,
    );
  });
  requireEnd(origin, last);
  return { kind: classifyByte(bytes[first]!), start: first, end: last };
}

/**
 * Like {@link scanValue}, but requires an object and returns the ranges of the members named in `keys`, each at the
 * index of its key in `keys`. Validates all other members without allocating strings for their keys. If a key is
 * repeated, the last member wins.
 *
 * @throws INVALID_UTF8 and INVALID_JSON (also if the value is not an object) with the offset from `start`, TOO_DEEP.
 */
export function scanObject(
  bytes: Buffer,
  start: number,
  end: number,
  keys: KeySet,
  options: ScanOptions,
): (JsonRange | undefined)[] {
  const origin = new ScanInput(bytes, start, end, options);
  const members = new Array<JsonRange | undefined>(keys.keys.length).fill(undefined);
  const first = requireObject(origin);
  const last = scanChildren(origin, first, (keyStart, keyEnd, from, to) => {
    const position = keys.find(bytes, keyStart + 1, keyEnd - 1);
    if (position >= 0) members[position] = { kind: classifyByte(bytes[from]!), start: from, end: to };
  });
  requireEnd(origin, last);
  return members;
}

/** Called with the range of the key, including its quotes (empty in an array), and the range of the value. */
type OnChild = (keyStart: number, keyEnd: number, start: number, end: number) => void;

/** Validates the object or array that begins at `first` and calls `onChild` for each child; returns the index after it. */
function scanChildren(origin: ScanInput, first: number, onChild: OnChild): number {
  const cursor = new ChildCursor(origin, first, 0);
  let hasValue = cursor.first();
  while (hasValue) {
    const valueEnd = scanAny(origin, cursor.at, 1);
    onChild(cursor.keyStart, cursor.keyEnd, cursor.at, valueEnd);
    hasValue = cursor.next(valueEnd);
  }
  return cursor.at;
}

/** Returns the kind of the value that begins with `byte`, in validated JSON. */
export function classifyByte(byte: number): JsonKind {
  switch (byte) {
    case openBrace:
      return 'object';
    case openBracket:
      return 'array';
    case quote:
      return 'string';
    case 0x74:
      return 'true';
    case 0x66:
      return 'false';
    case 0x6e:
      return 'null';
    default:
      return 'number';
  }
}

/** Returns the index of the opening brace. @throws INVALID_JSON if the text does not begin with an object. */
export function requireObject(origin: ScanInput): number {
  const first = skipSpace(origin.bytes, origin.start, origin.end);
  if (first >= origin.end || origin.bytes[first] !== openBrace) origin.failUnexpected(first, 'an object');
  return first;
}

export function requireEnd(origin: ScanInput, index: number): void {
  const rest = skipSpace(origin.bytes, index, origin.end);
  if (rest < origin.end) origin.fail(rest, 'text after the end of the value');
}
