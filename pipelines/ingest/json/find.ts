import { classifyByte, type JsonRange } from './scan.ts';
import { skipSpace } from './scan-any.ts';
import { skipColon, skipString, skipValue } from './skip.ts';
import { decodeStringBytes } from './text.ts';

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

/** Whether the string in `bytes[start, end)`, which includes its quotes, equals `key`. */
function isKey(bytes: Buffer, start: number, end: number, key: string): boolean {
  const length = end - start - 2;
  // Escapes and UTF-8 never use fewer bytes than the text has UTF-16 units.
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
