import { classifyByte, type JsonRange } from './scan.ts';
import { skipSpace } from './scan-any.ts';
import { decodeStringBytes } from './scan-string.ts';

const quote = 0x22;
const backslash = 0x5c;

/**
 * Number of bytes of a string that are read one by one before the native search starts. Calling the search costs as
 * much as reading about 50 bytes.
 */
const maxLoopBytes = 64;

/** Returns the index after the string whose opening quote is at `from`; the end of `bytes` if the string does not end. */
export function skipString(bytes: Buffer, from: number): number {
  let index = from + 1;
  for (;;) {
    const loopEnd = Math.min(index + maxLoopBytes, bytes.length);
    while (index < loopEnd) {
      const byte = bytes[index]!;
      if (byte === quote) return index + 1;
      index += byte === backslash ? 2 : 1;
    }
    index = bytes.indexOf(quote, index);
    if (index < 0) return bytes.length;
    if (!isEscaped(bytes, index, from)) return index + 1;
    index++;
  }
}

/** Returns whether an odd number of backslashes, all after `from`, precedes `index`. */
function isEscaped(bytes: Buffer, index: number, from: number): boolean {
  let before = index;
  while (before - 1 > from && bytes[before - 1] === backslash) before--;
  return ((index - before) & 1) === 1;
}

/** Returns the index after the value that begins at `from`, in validated JSON that ends at `end`. */
export function skipValue(bytes: Buffer, from: number, end: number): number {
  const first = bytes[from]!;
  if (first === quote) return skipString(bytes, from);
  if (first !== 0x7b && first !== 0x5b) return skipScalar(bytes, from, end);
  let level = 0;
  let index = from;
  while (index < end) {
    const byte = bytes[index]!;
    if (byte === quote) {
      index = skipString(bytes, index);
      continue;
    }
    index++;
    // '[' and '{', ']' and '}' differ in one bit.
    if ((byte & 0xdf) === 0x5b) level++;
    else if ((byte & 0xdf) === 0x5d && --level === 0) return index;
  }
  return end;
}

function skipScalar(bytes: Buffer, from: number, end: number): number {
  let index = from;
  while (index < end) {
    const byte = bytes[index]!;
    if (byte === 0x2c || byte === 0x7d || byte === 0x5d || byte <= 0x20) break;
    index++;
  }
  return index;
}

/** Returns the index of the value after the key that ends at `keyEnd`, in validated JSON. */
export function skipColon(bytes: Buffer, keyEnd: number, end: number): number {
  return skipSpace(bytes, skipSpace(bytes, keyEnd, end) + 1, end);
}

/**
 * Finds the value at `path` in the validated JSON text `bytes[start, end)`. Every value on the path except the last
 * must be an object. If a key is repeated, the last member wins, as in `JSON.parse`. Returns `undefined` if the path
 * does not exist. Skips values that are not on the path.
 */
export function findPath(bytes: Buffer, start: number, end: number, path: readonly string[]): JsonRange | undefined {
  let from = skipSpace(bytes, start, end);
  let to = end;
  for (const key of path) {
    if (from >= to || bytes[from] !== 0x7b) return undefined;
    from = findMember(bytes, from, to, key);
    if (from < 0) return undefined;
    to = skipValue(bytes, from, to);
  }
  if (path.length === 0) to = skipValue(bytes, from, to);
  return { kind: classifyByte(bytes[from]!), start: from, end: to };
}

/** Returns the string that is the member `key` of the object; undefined if its JSON has more than `maxBytes`. */
export function findShortText(
  bytes: Buffer,
  start: number,
  end: number,
  key: string,
  maxBytes: number,
): string | undefined {
  const range = findPath(bytes, start, end, [key]);
  if (range?.kind !== 'string' || range.end - range.start > maxBytes) return undefined;
  return decodeStringBytes(bytes, range.start, range.end);
}

/** Returns the index of the value of `key` in the object at `from`; -1 if the object has no such key. */
function findMember(bytes: Buffer, from: number, end: number, key: string): number {
  let found = -1;
  let index = skipSpace(bytes, from + 1, end);
  while (index < end && bytes[index] === 0x22) {
    const keyEnd = skipString(bytes, index);
    const value = skipColon(bytes, keyEnd, end);
    if (isKey(bytes, index, keyEnd, key)) found = value;
    index = skipSpace(bytes, skipValue(bytes, value, end), end);
    if (index >= end || bytes[index] !== 0x2c) break;
    index = skipSpace(bytes, index + 1, end);
  }
  return found;
}

/** Returns whether the string in `bytes[start, end)`, which includes its quotes, equals `key`. */
function isKey(bytes: Buffer, start: number, end: number, key: string): boolean {
  const length = end - start - 2;
  // A key with escapes or UTF-8 sequences never has fewer bytes than its text has UTF-16 units.
  if (length < key.length) return false;
  let isPlain = true;
  for (let at = 0; at < length; at++) {
    const byte = bytes[start + 1 + at]!;
    if (byte === 0x5c || byte >= 0x80) {
      isPlain = false;
      break;
    }
    if (byte !== key.charCodeAt(at)) return false;
  }
  return isPlain ? length === key.length : decodeStringBytes(bytes, start, end) === key;
}
