import type { ScanInput } from './scan-input.ts';
import { decodeStringBytes, scanString } from './scan-string.ts';

/**
 * A fixed set of keys for lookups in JSON text. Looking up an unknown key allocates no string. `__proto__` and similar
 * keys have no special meaning.
 */
export class KeySet<K extends string = string> {
  readonly keys: readonly K[];
  readonly #encoded: readonly Buffer[];
  /** Positions of the keys, grouped by the length of the key in UTF-8. */
  readonly #byLength = new Map<number, number[]>();

  constructor(keys: readonly K[]) {
    this.keys = keys;
    this.#encoded = keys.map((key) => Buffer.from(key));
    for (const [position, { length }] of this.#encoded.entries()) {
      const positions = this.#byLength.get(length);
      if (positions === undefined) this.#byLength.set(length, [position]);
      else positions.push(position);
    }
  }

  /**
   * Returns the position in {@link keys} of the key that `bytes[start, end)` contains without its quotes; returns -1 if
   * the key is not in the set.
   */
  find(bytes: Buffer, start: number, end: number): number {
    const positions = this.#byLength.get(end - start);
    if (positions !== undefined) {
      for (const position of positions) if (isSame(this.#encoded[position]!, bytes, start)) return position;
    }
    for (let index = start; index < end; index++) {
      if (bytes[index] === 0x5c) {
        return (this.keys as readonly string[]).indexOf(decodeStringBytes(bytes, start - 1, end + 1));
      }
    }
    return -1;
  }
}

function isSame(key: Buffer, bytes: Buffer, start: number): boolean {
  for (let at = 0; at < key.length; at++) if (key[at] !== bytes[start + at]) return false;
  return true;
}

const openBrace = 0x7b;
const closeBrace = 0x7d;
const closeBracket = 0x5d;
const comma = 0x2c;
const quote = 0x22;

/**
 * Iterates over the direct children of one object or array and validates the text between them. The caller scans each
 * value itself, and may yield to the event loop between two values.
 */
export class ChildCursor {
  /** Range of the key, including its quotes; empty in an array. */
  keyStart = 0;
  keyEnd = 0;
  /** Start of the current value; after the last value, the end of the container. */
  at: number;
  readonly #origin: ScanInput;
  readonly #bytes: Buffer;
  readonly #end: number;
  readonly #isObject: boolean;
  readonly #closing: number;

  /**
   * Creates a cursor for the container that begins at `first`.
   *
   * @throws TOO_DEEP if this container, at nesting depth `depth`, is itself too deep.
   */
  constructor(origin: ScanInput, first: number, depth: number) {
    if (depth >= origin.maxDepth) origin.failTooDeep();
    origin.values?.add();
    this.#origin = origin;
    this.#bytes = origin.bytes;
    this.#end = origin.end;
    this.#isObject = origin.bytes[first] === openBrace;
    this.#closing = this.#isObject ? closeBrace : closeBracket;
    this.at = first;
  }

  /** Moves to the first value. Returns false if the container is empty. @throws INVALID_JSON */
  first(): boolean {
    const index = skipSpace(this.#bytes, this.at + 1, this.#end);
    if (index < this.#end && this.#bytes[index] === this.#closing) return this.#close(index);
    if (this.#isObject) this.#key(index, "a key or '}'");
    else this.#item(index, "a value or ']'");
    return true;
  }

  /** Moves to the value after the one that ended at `valueEnd`. Returns false at the end. @throws INVALID_JSON */
  next(valueEnd: number): boolean {
    const end = this.#end;
    let index = skipSpace(this.#bytes, valueEnd, end);
    const byte = index < end ? this.#bytes[index]! : 0;
    if (byte === this.#closing) return this.#close(index);
    if (byte !== comma) this.#origin.failUnexpected(index, this.#isObject ? "',' or '}'" : "',' or ']'");
    this.#origin.values?.add();
    index = skipSpace(this.#bytes, index + 1, end);
    if (this.#isObject) this.#key(index, 'a key');
    else this.#item(index, 'a value');
    return true;
  }

  #close(index: number): false {
    this.at = index + 1;
    return false;
  }

  #key(index: number, expected: string): void {
    if (index >= this.#end || this.#bytes[index] !== quote) this.#origin.failUnexpected(index, expected);
    this.keyStart = index;
    this.keyEnd = scanString(this.#origin, index + 1);
    this.at = scanColon(this.#origin, this.keyEnd);
  }

  #item(index: number, expected: string): void {
    if (index >= this.#end) this.#origin.failUnexpected(index, expected);
    this.at = index;
  }
}

/**
 * Kind of the container at each open level; 1 means object. All scans share this array, because a scan is synchronous
 * and never nested.
 */
let levels = new Uint8Array(1_024);

/** Returns the index of the first byte from `from` on that is not white space; `end` if there is none. */
export function skipSpace(bytes: Uint8Array, from: number, end: number): number {
  let index = from;
  while (index < end) {
    const byte = bytes[index]!;
    if (byte > 0x20 || (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09)) break;
    index++;
  }
  return index;
}

/**
 * Validates the JSON value that begins at `from`, at nesting depth `depth`; returns the index after it. The scan is
 * iterative and needs one byte for each nesting level.
 *
 * @throws INVALID_JSON with the offset and the reason, TOO_DEEP.
 */
export function scanAny(origin: ScanInput, from: number, depth: number): number {
  const { bytes, end } = origin;
  let index = from;
  let level = depth;
  let isObject = false;
  for (;;) {
    // `index` is at the start of a value.
    const byte = index < end ? bytes[index]! : 0;
    if (byte === 0x22) {
      index = scanString(origin, index + 1);
    } else if (byte === 0x7b || byte === 0x5b) {
      if (level >= origin.maxDepth) origin.failTooDeep();
      origin.values?.add();
      if (level >= levels.length) growLevels();
      levels[level++] = isObject ? 1 : 0;
      isObject = byte === 0x7b;
      index = skipSpace(bytes, index + 1, end);
      const isEmpty = index < end && bytes[index] === (isObject ? 0x7d : 0x5d);
      if (!isEmpty) {
        if (isObject) index = scanKey(origin, index, "a key or '}'");
        else if (index >= end) origin.failUnexpected(index, "a value or ']'");
        continue;
      }
      index++;
      isObject = levels[--level] === 1;
    } else if ((byte >= 0x30 && byte <= 0x39) || byte === 0x2d) {
      index = scanNumber(origin, index);
    } else {
      index = scanLiteral(origin, index, byte);
    }
    // `index` is at the end of a value: close the containers that end here, then move to the next value.
    for (;;) {
      if (level === depth) return index;
      index = skipSpace(bytes, index, end);
      const next = index < end ? bytes[index]! : 0;
      if (next === 0x2c) {
        origin.values?.add();
        index = skipSpace(bytes, index + 1, end);
        if (isObject) index = scanKey(origin, index, 'a key');
        break;
      }
      if (next !== (isObject ? 0x7d : 0x5d)) origin.failUnexpected(index, isObject ? "',' or '}'" : "',' or ']'");
      index++;
      isObject = levels[--level] === 1;
    }
  }
}

/** Validates the key at `index` and its colon; returns the index of the value. */
function scanKey(origin: ScanInput, index: number, expected: string): number {
  const { bytes, end } = origin;
  if (index >= end || bytes[index] !== 0x22) origin.failUnexpected(index, expected);
  return scanColon(origin, scanString(origin, index + 1));
}

/** Validates the colon after a key that ends at `index`; returns the index of the value. */
function scanColon(origin: ScanInput, index: number): number {
  const { bytes, end } = origin;
  const colon = skipSpace(bytes, index, end);
  if (colon >= end || bytes[colon] !== 0x3a) origin.failUnexpected(colon, "':'");
  return skipSpace(bytes, colon + 1, end);
}

function scanLiteral(origin: ScanInput, index: number, byte: number): number {
  const { bytes, end } = origin;
  const word = byte === 0x74 ? 'true' : byte === 0x66 ? 'false' : byte === 0x6e ? 'null' : '';
  if (word === '') return origin.failUnexpected(index, 'a value');
  for (let at = 1; at < word.length; at++) {
    if (index + at >= end || bytes[index + at] !== word.charCodeAt(at)) {
      return origin.failUnexpected(index + at, `the rest of '${word}'`);
    }
  }
  return index + word.length;
}

function growLevels(): void {
  const grown = new Uint8Array(levels.length * 2);
  grown.set(levels);
  levels = grown;
}

/** Validates the number whose first byte, `-` or a digit, is at `from`; returns the index after it. @throws INVALID_JSON */
function scanNumber(origin: ScanInput, from: number): number {
  const { bytes, end } = origin;
  let index = from;
  if (bytes[index] === 0x2d) index++;
  if (index < end && bytes[index] === 0x30) {
    index++;
    if (index < end && isDigit(bytes[index]!)) return origin.fail(from, 'a number with a leading zero');
  } else index = scanDigits(origin, index);
  if (index < end && bytes[index] === 0x2e) index = scanDigits(origin, index + 1);
  if (index < end && (bytes[index]! | 0x20) === 0x65) {
    index++;
    if (index < end && (bytes[index] === 0x2b || bytes[index] === 0x2d)) index++;
    index = scanDigits(origin, index);
  }
  return index;
}

function scanDigits(origin: ScanInput, from: number): number {
  const { bytes, end } = origin;
  let index = from;
  while (index < end && isDigit(bytes[index]!)) index++;
  return index > from ? index : origin.failUnexpected(index, 'a digit');
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}
