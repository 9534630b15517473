/**
 * Sizes of JSON texts as the original tool server counts them: Python's `json.dumps` with its default separators
 * (`, ` and `: `), in characters (Unicode code points).
 */
import { PythonNumber } from './python-numbers.ts';

/** `unicode`: other characters than ASCII count as they are; `ascii`: they count as escapes (`\uXXXX`). */
export type SizeForm = 'unicode' | 'ascii';

/**
 * Length of `value` as JSON. The walk ends when the length exceeds `max`: then the result is any number above it.
 *
 * @param cut truncates a string, for all strings except keys: a truncated value is measured without being copied.
 */
export function jsonLength(
  value: unknown,
  form: SizeForm,
  max = Number.POSITIVE_INFINITY,
  cut: (text: string) => string = (text) => text,
): number {
  if (typeof value === 'string') return stringLength(cut(value), form);
  if (typeof value === 'number') return formatNumber(value).length;
  if (value === null) return 4;
  if (typeof value === 'boolean') return value ? 4 : 5;
  if (value instanceof PythonNumber) return value.text.length;
  let length = 2;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value) {
      length += (count++ > 0 ? 2 : 0) + jsonLength(item, form, max - length, cut);
      if (length > max) return length;
    }
    return length;
  }
  const members = value as Readonly<Record<string, unknown>>;
  for (const key of Object.keys(members)) {
    const member = members[key];
    if (member === undefined) continue;
    length += (count++ > 0 ? 4 : 2) + stringLength(key, form) + jsonLength(member, form, max - length, cut);
    if (length > max) return length;
  }
  return length;
}

const needsNoEscape = { unicode: /^[ !#-[\]-\ud7ff\ue000-\uffff]*$/, ascii: /^[ !#-[\]-~]*$/ };
const shortEscapes = /^["\\\b\f\n\r\t]$/;

/** Length of a string with its quotes. */
function stringLength(text: string, form: SizeForm): number {
  if (needsNoEscape[form].test(text)) return text.length + 2;
  let length = 2;
  for (const character of text) {
    if (shortEscapes.test(character)) length += 2;
    else if (character < ' ') length += 6;
    else if (form === 'unicode' || (character >= ' ' && character <= '~')) length += 1;
    else length += 6 * character.length;
  }
  return length;
}

/** A number as Python writes it: with an exponent already below 0.0001, of two digits at least. */
export function formatNumber(value: number): string {
  if (Number.isInteger(value) || Math.abs(value) >= 1e-4) return String(value);
  const [digits = '', exponent = ''] = value.toExponential().split('e-');
  return `${digits}e-${exponent.padStart(2, '0')}`;
}

/** Number of characters (code points) of a text. */
export function characterCount(text: string): number {
  if (!/[\ud800-\udbff]/.test(text)) return text.length;
  let count = 0;
  for (let at = 0; at < text.length; count += 1) at += (text.codePointAt(at) as number) > 0xffff ? 2 : 1;
  return count;
}

/** The first `count` characters (code points) of a text; the text itself if it is not longer. */
export function firstCharacters(text: string, count: number): string {
  if (text.length <= count) return text;
  let at = 0;
  for (let taken = 0; taken < count && at < text.length; taken += 1)
    at += (text.codePointAt(at) as number) > 0xffff ? 2 : 1;
  return text.slice(0, at);
}
