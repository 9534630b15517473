import { randomBytes } from 'node:crypto';
import { countBackslashes, markNumbers } from '../../../infra/json/mark-numbers.ts';

/** A parsed document, and a function that formats the document or a changed copy of it. */
interface ExactJson {
  readonly value: unknown;
  readonly format: (value: unknown) => string;
}

/**
 * Parses JSON and keeps the digits of numbers that JavaScript would change, such as 12345678901234567890 or 0.10. In
 * `value`, such a number is a text that begins with a random marker; `format` returns the number, also within JSON that
 * was formatted as a text of the document.
 */
export function parseExactJson(text: string): ExactJson {
  const marker = `number-${randomBytes(16).toString('hex')}:`;
  const marked = markNumbers(text, marker, (digits) => String(Number(digits)) !== digits);
  if (marked === undefined) return { value: JSON.parse(text), format: JSON.stringify };
  return { value: JSON.parse(marked), format: (value) => restoreNumbers(JSON.stringify(value), marker) };
}

/**
 * Removes the markers, and the quotes around them. The quotes are escaped within JSON that was formatted as a text, and
 * absent if a number became a part of a longer text. No regular expression, because it would take quadratic time for long
 * runs of backslashes.
 */
function restoreNumbers(text: string, marker: string): string {
  const number = /-?\d[\d.eE+-]*/y;
  const parts: string[] = [];
  let copied = 0;
  for (let at = text.indexOf(marker); at >= 0; at = text.indexOf(marker, copied)) {
    number.lastIndex = at + marker.length;
    const [digits = ''] = number.exec(text) ?? [];
    const digitsEnd = at + marker.length + digits.length;
    let [start, end] = [at, digitsEnd];
    while (text[end] === '\\') end += 1;
    const isQuoted = text[at - 1] === '"' && text[end] === '"';
    if (isQuoted) start -= 1 + countBackslashes(text, at - 1);
    parts.push(text.slice(copied, start), digits);
    copied = isQuoted ? end + 1 : digitsEnd;
  }
  return [...parts, text.slice(copied)].join('');
}
