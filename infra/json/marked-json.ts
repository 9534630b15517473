import { randomUUID } from 'node:crypto';
import { isJsonObject } from './json-value.ts';
import { markNumbers } from './mark-numbers.ts';

/**
 * JSON values that keep the digits of numbers that JavaScript would change, such as 12345678901234567890 or 1.0.
 *
 * In a value, such a number is a text that begins with {@link mark}. Everything that formats the value must use
 * {@link formatMarkedJson}; responses of the APIs and columns of the type `jsonb` do.
 */

/** Random, and never part of a response or a stored value, so that no client can send it. */
const mark = `number-${randomUUID()}:`;

/** Further numbers of a text may lose digits, as may numbers of more than 10,000 digits. A marked number takes as much memory as ten plain ones. */
const maxMarks = 100_000;

const isChanged = (digits: string) => String(Number(digits)) !== digits;

/** Parses JSON. @throws SyntaxError */
export function parseMarkedJson(text: string): unknown {
  return JSON.parse(markNumbers(text, mark, isChanged, maxMarks) ?? text);
}

/** Parses the JSON text of a column; null stays null. */
export function parseNullableMarkedJson<T = Record<string, unknown>>(text: string | null): T | null {
  return text === null ? null : (parseMarkedJson(text) as T);
}

/** Formats a value as JSON, with the numbers as they were sent. */
export const formatMarkedJson = (value: unknown): string => restoreNumbers(JSON.stringify(value));

/**
 * Replaces marked numbers in a JSON text by numbers.
 *
 * @param format returns a number as JSON; by default its digits, as they were sent.
 */
export function restoreNumbers(text: string, format = (digits: string) => digits): string {
  const [start = '', ...others] = text.split(`"${mark}`);
  if (others.length === 0) return text;
  const parts = others.map((part) => {
    const end = part.indexOf('"');
    return format(part.slice(0, end)) + part.slice(end + 1);
  });
  return start + parts.join('');
}

/**
 * Parses JSON in which only the values at `paths` keep exact numbers. A path leads into each item of a list.
 *
 * @param onCopy Called before the text is parsed a second time.
 * @throws SyntaxError; errors of `onCopy`.
 */
export function parsePartlyMarkedJson(text: string, paths: readonly string[], onCopy?: () => void): unknown {
  const value: unknown = JSON.parse(text);
  const marked = paths.length > 0 ? markNumbers(text, mark, isChanged, maxMarks) : undefined;
  if (marked === undefined) return value;
  onCopy?.();
  const exact: unknown = JSON.parse(marked);
  for (const path of paths) copyAt(value, exact, path.split('.'));
  return value;
}

function copyAt(target: unknown, source: unknown, path: readonly string[]): void {
  if (Array.isArray(target)) {
    for (const [index, item] of target.entries()) copyAt(item, (source as unknown[])[index], path);
    return;
  }
  const [name = '', ...rest] = path;
  if (!isJsonObject(target) || !Object.hasOwn(target, name)) return;
  const exact = (source as Record<string, unknown>)[name];
  if (rest.length > 0) copyAt(target[name], exact, rest);
  else Object.assign(target, { [name]: exact });
}
