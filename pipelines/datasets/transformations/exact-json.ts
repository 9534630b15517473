import { randomBytes } from 'node:crypto';

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
  const parts: string[] = [];
  let copied = 0;
  for (const { start, end } of findNumbers(text)) {
    const digits = text.slice(start, end);
    if (String(Number(digits)) === digits) continue;
    parts.push(text.slice(copied, start), `"${marker}${digits}"`);
    copied = end;
  }
  if (parts.length === 0) return { value: JSON.parse(text), format: JSON.stringify };
  return {
    value: JSON.parse([...parts, text.slice(copied)].join('')),
    format: (value) => restoreNumbers(JSON.stringify(value), marker),
  };
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

/** Finds the numbers of valid JSON outside of its texts. */
function* findNumbers(text: string): Generator<{ readonly start: number; readonly end: number }> {
  const token = /"|-?\d[\d.eE+-]*/g;
  for (let found = token.exec(text); found !== null; found = token.exec(text)) {
    if (found[0] === '"') token.lastIndex = findTextEnd(text, found.index + 1);
    else yield { start: found.index, end: token.lastIndex };
  }
}

/** Returns the position after the quote that ends a text. */
function findTextEnd(text: string, start: number): number {
  let at = text.indexOf('"', start);
  while (isEscaped(text, at)) at = text.indexOf('"', at + 1);
  return at + 1;
}

const isEscaped = (text: string, at: number) => countBackslashes(text, at) % 2 === 1;

/** Counts the backslashes before a position. */
function countBackslashes(text: string, at: number): number {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === '\\') backslashes += 1;
  return backslashes;
}
