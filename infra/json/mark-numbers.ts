/** Numbers that JavaScript would change, such as 12345678901234567890 or 0.10, survive `JSON.parse` as marked texts. */

const anyNumber = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export interface MarkLimits {
  /** Matches whole numbers; those that it does not match are not replaced. Global. */
  readonly numbers?: RegExp;
  /** Further numbers are not replaced. */
  readonly maxMarks?: number;
}

/**
 * Replaces numbers outside the texts of a JSON document by texts that begin with `mark`, which no other text of the
 * document may contain. Takes linear time.
 *
 * @param isMarked returns whether a number, as it is written in the document, is to be replaced.
 * @returns undefined if no number is to be replaced. JSON that is not valid stays not valid.
 */
export function markNumbers(
  text: string,
  mark: string,
  isMarked: (token: string) => boolean,
  { numbers = anyNumber, maxMarks = Number.POSITIVE_INFINITY }: MarkLimits = {},
): string | undefined {
  let marks = 0;
  let copiedTo = 0;
  const parts: string[] = [];
  for (let at = 0; at < text.length && marks < maxMarks; ) {
    const quote = text.indexOf('"', at);
    const start = quote === -1 ? text.length : quote;
    const between = text.slice(at, start);
    numbers.lastIndex = 0;
    for (let found = numbers.exec(between); found !== null && marks < maxMarks; found = numbers.exec(between)) {
      const [token] = found;
      if (!isMarked(token)) continue;
      const tokenAt = at + found.index;
      parts.push(text.slice(copiedTo, tokenAt), `"${mark}${token}"`);
      copiedTo = tokenAt + token.length;
      marks += 1;
    }
    at = findStringEnd(text, start);
  }
  return marks > 0 ? parts.join('') + text.slice(copiedTo) : undefined;
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
