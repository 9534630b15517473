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
  const marked = new RegExp(`\\\\*"${marker}([^"\\\\]+)\\\\*"`, 'g');
  return {
    value: JSON.parse([...parts, text.slice(copied)].join('')),
    format: (value) => JSON.stringify(value).replace(marked, '$1'),
  };
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

function isEscaped(text: string, at: number): boolean {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === '\\') backslashes += 1;
  return backslashes % 2 === 1;
}
