import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { type OnValue, scanJson } from '../json/scan.ts';
import type { ByteRange } from './span.ts';

const openBrace = 0x7b;
const openBracket = 0x5b;

/**
 * Returns the kind of JSON in a string of the request if it is a complete object or array, nested at most `maxDepth`
 * deep; otherwise undefined.
 */
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

/** Maximum members of an object that are written one by one; a larger object stays text. */
const maxMembers = 10_000;

/**
 * Finds the ranges of the members of a JSON object in a string. If a name is repeated, the last member wins. Returns
 * undefined if the string is not an object or has more than {@link maxMembers}.
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
      throw runlakeError('TOO_MANY_PARTS', { limitParts: maxMembers, limit: 'members of an attribute' });
  });
  return kind === 'object' ? members : undefined;
}
