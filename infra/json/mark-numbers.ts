/** Numbers that JavaScript would change, such as 12345678901234567890 or 0.10, survive `JSON.parse` as marked texts. */
import { randomUUID } from 'node:crypto';

/** Begins a marked text. Random, and never part of a response or a stored value, so that no client can send it. */
export const numberMark = `number-${randomUUID()}:`;

/**
 * Matches the numbers that JavaScript may change, and no part of another number: those with at least 16 digits, with an
 * exponent, with a fraction that ends in 0 or begins with six zeros, and -0. Numbers of more than 10,000 digits are not
 * matched: they could overflow the stack of the regular expression.
 */
const changeableNumber = new RegExp(
  [
    '(?<![\\d.eE+-])-?(?:\\d{16,N}(?:\\.\\d{1,N})?(?:[eE][+-]?\\d{1,N})?',
    '\\d{1,15}(?:\\.\\d{1,N})?[eE][+-]?\\d{1,N}',
    '\\d{1,15}\\.\\d{0,N}0',
    '(?=[\\d.]{17}|0\\.0{6})\\d{1,15}\\.\\d{1,N}',
    '(?<=-)0)(?![\\d.eE+-])',
  ]
    .join('|')
    .replaceAll('N', '10000'),
  'g',
);

/**
 * Replaces numbers that JavaScript would change, outside the texts of a JSON document, by texts that begin with
 * {@link numberMark}. Takes linear time.
 *
 * @param isMarked returns whether such a number, as it is written in the document, is to be replaced.
 * @param maxMarks Further numbers are not replaced.
 * @returns undefined if no number is to be replaced. JSON that is not valid stays not valid.
 */
export function markNumbers(text: string, isMarked: (token: string) => boolean, maxMarks: number): string | undefined {
  let marks = 0;
  let copiedTo = 0;
  const parts: string[] = [];
  for (let at = 0; at < text.length && marks < maxMarks; ) {
    const quote = text.indexOf('"', at);
    const start = quote === -1 ? text.length : quote;
    if (hasDigit(text, at, start)) {
      const between = text.slice(at, start);
      changeableNumber.lastIndex = 0;
      for (
        let found = changeableNumber.exec(between);
        found !== null && marks < maxMarks;
        found = changeableNumber.exec(between)
      ) {
        const [token] = found;
        if (!isMarked(token)) continue;
        const tokenAt = at + found.index;
        parts.push(text.slice(copiedTo, tokenAt), `"${numberMark}${token}"`);
        copiedTo = tokenAt + token.length;
        marks += 1;
      }
    }
    at = findStringEnd(text, start);
  }
  return marks > 0 ? parts.join('') + text.slice(copiedTo) : undefined;
}

/** Quicker than the regular expression for the few characters between most strings. */
function hasDigit(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const code = text.charCodeAt(at);
    if (code >= 48 && code <= 57) return true;
  }
  return false;
}

/**
 * Returns the position after the string that begins at `start`. A regular expression would overflow its stack for
 * strings of some MB.
 */
function findStringEnd(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    if (countBackslashes(text, end) % 2 === 0) return end + 1;
  }
  return text.length;
}

/** Counts the backslashes before a position. */
export function countBackslashes(text: string, at: number): number {
  let backslashes = 0;
  while (text[at - 1 - backslashes] === '\\') backslashes += 1;
  return backslashes;
}
