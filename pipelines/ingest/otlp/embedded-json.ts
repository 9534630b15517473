import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { type OnValue, scanJson } from '../json/scan.ts';
import type { ByteRange } from './span.ts';

const openBrace = 0x7b;
const openBracket = 0x5b;

/** JSON inside a string of the request: a whole object or array, nested at most `maxDepth` deep; else undefined. */
export function embeddedJson(
  source: Buffer,
  start: number,
  end: number,
  maxDepth: number,
  onValue?: OnValue,
): 'object' | 'array' | undefined {
  let first = start;
  while (first < end && source[first]! <= 0x20) first++;
  if (first === end || (source[first] !== openBrace && source[first] !== openBracket)) return undefined;
  try {
    scanJson(source, start, end, { part: 'an attribute', maxDepth }, onValue);
  } catch (error) {
    if (isRunlakeError(error)) return undefined;
    throw error;
  }
  return source[first] === openBrace ? 'object' : 'array';
}

/** Members of an object that are written one by one; an object with more stays the text that it is. */
const maxMembers = 10_000;

/**
 * The members of a JSON object inside a string, as they stand, of one name the last; undefined where it is none, or has more
 * than any metadata.
 */
export function embeddedMembers(
  source: Buffer,
  start: number,
  end: number,
  maxDepth: number,
): ReadonlyMap<string, ByteRange> | undefined {
  const members = new Map<string, ByteRange>();
  const kind = embeddedJson(source, start, end, maxDepth, (_, from, to, key) => {
    if (key === undefined) return;
    members.set(key, { start: from, end: to });
    if (members.size > maxMembers)
      throw fault('TOO_MANY_PARTS', { limitParts: maxMembers, limit: 'members of an attribute' });
  });
  return kind === 'object' ? members : undefined;
}
