import { isJsonObject } from './json-value.ts';
import { countBackslashes, markNumbers, numberMark } from './mark-numbers.ts';

/**
 * JSON values that keep the digits of numbers that JavaScript would change, such as 12345678901234567890 or 1.0.
 *
 * In a value, such a number is a text that begins with {@link numberMark}. Everything that formats the value must use
 * {@link formatMarkedJson}; responses of the APIs and columns of the type `jsonb` do.
 */

/** A marked number takes as much memory as ten plain ones. */
const defaultMaxMarks = 100_000;

const isChanged = (digits: string) => String(Number(digits)) !== digits;

/**
 * Parses JSON.
 *
 * @param maxMarks Further numbers may lose digits, as may numbers of more than 10,000 digits.
 * @throws SyntaxError
 */
export function parseMarkedJson(text: string, maxMarks = defaultMaxMarks): unknown {
  return JSON.parse(markNumbers(text, isChanged, maxMarks) ?? text);
}

/** Parses the JSON text of a column; null stays null. */
export function parseNullableMarkedJson<T = Record<string, unknown>>(text: string | null): T | null {
  return text === null ? null : (parseMarkedJson(text) as T);
}

/** Formats a value as JSON, with the numbers as they were sent. */
export const formatMarkedJson = (value: unknown): string => restoreNumbers(JSON.stringify(value));

/**
 * Replaces marked numbers in a JSON text by numbers, also within JSON that was formatted as a text of the value, where
 * the quotes around them are escaped, and within longer texts. No regular expression finds the quotes, because it would
 * take quadratic time for long runs of backslashes.
 *
 * @param format returns a number as JSON; by default its digits, as they were sent.
 */
export function restoreNumbers(text: string, format = (digits: string) => digits): string {
  const number = /-?\d[\d.eE+-]*/y;
  const parts: string[] = [];
  let copiedTo = 0;
  for (let at = text.indexOf(numberMark); at >= 0; at = text.indexOf(numberMark, copiedTo)) {
    number.lastIndex = at + numberMark.length;
    const [digits = ''] = number.exec(text) ?? [];
    const end = at + numberMark.length + digits.length;
    const quote = text[at - 1] === '"' ? text.slice(at - 1 - countBackslashes(text, at - 1), at) : '';
    const isQuoted = text.startsWith(quote, end);
    parts.push(text.slice(copiedTo, isQuoted ? at - quote.length : at), format(digits));
    copiedTo = isQuoted ? end + quote.length : end;
  }
  return parts.length > 0 ? parts.join('') + text.slice(copiedTo) : text;
}

/**
 * Parses JSON in which only the values at `paths` keep exact numbers. A path leads into each item of a list.
 *
 * @param onCopy Called before the text is parsed a second time.
 * @throws SyntaxError; errors of `onCopy`.
 */
export function parsePartlyMarkedJson(text: string, paths: readonly string[], onCopy?: () => void): unknown {
  const value: unknown = JSON.parse(text);
  const marked = paths.length > 0 ? markNumbers(text, isChanged, defaultMaxMarks) : undefined;
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
