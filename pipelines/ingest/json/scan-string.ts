import type { ScanInput } from './scan-input.ts';
/**
 * Decodes the JSON string from `start` to `end`, which includes its quotes, in validated JSON. Keeps lone surrogates.
 */
export function decodeStringBytes(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString('utf8', start, end);
  return text.includes('\\') ? (JSON.parse(text) as string) : text.slice(1, -1);
}

/**
 * Parses the validated JSON from `start` to `end`. Suitable only for small values, because all nested values become
 * JavaScript objects.
 */
export function parseRange(bytes: Buffer, start: number, end: number): unknown {
  return JSON.parse(bytes.toString('utf8', start, end));
}

const quote = 0x22;
const backslash = 0x5c;

/** 1 for bytes that end a plain section of a string: quote, backslash, control characters. */
const isSpecial = new Uint8Array(256).fill(1, 0, 0x20);
isSpecial[quote] = 1;
isSpecial[backslash] = 1;

/** 1 for bytes that may follow a backslash, 2 for `u`. */
const escapeKind = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) escapeKind[byte] = 1;
escapeKind[0x75] = 2;

const isHex = new Uint8Array(256);
for (const byte of Buffer.from('0123456789abcdefABCDEF')) isHex[byte] = 1;

/** Number of plain bytes that are read one by one before whole words are read, because most strings are shorter. */
const maxLoopBytes = 24;

/**
 * Validates the string whose first byte after the opening quote is at `from`; returns the index after the closing quote.
 * @throws INVALID_JSON
 */
export function scanString(origin: ScanInput, from: number): number {
  const { bytes, end } = origin;
  let index = from;
  for (;;) {
    const near = Math.min(index + maxLoopBytes, end);
    while (index < near && isSpecial[bytes[index]!] === 0) index++;
    if (index === near && index < end) {
      index = skipPlainWords(origin, index);
      while (index < end && isSpecial[bytes[index]!] === 0) index++;
    }
    if (index >= end) return origin.fail(end, 'the text ends inside a string');
    const byte = bytes[index]!;
    if (byte === quote) return index + 1;
    if (byte !== backslash) return failAtControlCharacter(origin, index, byte);
    index = scanEscape(origin, index);
  }
}

/**
 * Skips plain bytes, four at a time. A word contains a byte below n if `(word - n in each byte) & ~word` has a high bit
 * set. To find a byte that equals b, the same test is applied to `word ^ b` with n = 1.
 */
function skipPlainWords(origin: ScanInput, from: number): number {
  const { bytes, end, words } = origin;
  const base = bytes.byteOffset;
  let index = from;
  while (((base + index) & 3) !== 0) {
    if (index >= end || isSpecial[bytes[index]!] !== 0) return index;
    index++;
  }
  let word = (base + index) >>> 2;
  const lastWord = (base + end) >>> 2;
  while (word < lastWord) {
    const fourBytes = words[word]!;
    const quotes = fourBytes ^ 0x22222222;
    const backslashes = fourBytes ^ 0x5c5c5c5c;
    const found =
      (((fourBytes - 0x20202020) & ~fourBytes) |
        ((quotes - 0x01010101) & ~quotes) |
        ((backslashes - 0x01010101) & ~backslashes)) &
      0x80808080;
    if (found !== 0) break;
    word++;
  }
  return Math.max(index, word * 4 - base);
}

/** Validates the escape whose backslash is at `index`; returns the index after it. */
function scanEscape(origin: ScanInput, index: number): number {
  const { bytes, end } = origin;
  if (index + 1 >= end) return origin.fail(end, 'the text ends inside a string');
  const kind = escapeKind[bytes[index + 1]!];
  if (kind === 1) return index + 2;
  if (kind === 0) return origin.fail(index, 'an escape that JSON does not define');
  for (let digitIndex = index + 2; digitIndex < index + 6; digitIndex++) {
    if (digitIndex >= end) return origin.fail(end, 'the text ends inside a string');
    if (isHex[bytes[digitIndex]!] === 0) return origin.fail(index, 'a \\u escape without four hexadecimal digits');
  }
  return index + 6;
}

function failAtControlCharacter(origin: ScanInput, index: number, byte: number): never {
  return origin.fail(index, `the control character 0x${byte.toString(16).padStart(2, '0')} inside a string`);
}
