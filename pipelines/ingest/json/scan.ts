import { ChildCursor, type KeySet, scanAny, skipSpace } from './scan-any.ts';
import { ScanInput, type ScanOptions } from './scan-input.ts';
import { decodeStringBytes } from './scan-string.ts';

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
