import { skipSpace } from './scan-any.ts';

const quote = 0x22;
const backslash = 0x5c;

/**
 * Number of bytes of a string to read one by one before the native search. Calling the search costs as much as reading
 * about 50 bytes.
 */
const maxLoopBytes = 64;

/** Returns the index after the string whose opening quote is at `from`, in validated JSON. */
export function skipString(bytes: Buffer, from: number): number {
  let index = from + 1;
  for (;;) {
    const near = Math.min(index + maxLoopBytes, bytes.length);
    while (index < near) {
      const byte = bytes[index]!;
      if (byte === quote) return index + 1;
      index += byte === backslash ? 2 : 1;
    }
    index = nextQuote(bytes, index);
    if (!isEscaped(bytes, index, from)) return index + 1;
    index++;
  }
}

/**
 * Returns the index of the first quote from `index` on, or the end of `bytes`. A quote at `index` itself is not
 * escaped, because the caller skips whole escapes.
 */
function nextQuote(bytes: Buffer, index: number): number {
  const found = bytes.indexOf(quote, index);
  return found < 0 ? bytes.length : found;
}

/** Whether an odd number of backslashes, all after `from`, precedes `index`. */
function isEscaped(bytes: Buffer, index: number, from: number): boolean {
  let before = index;
  while (before - 1 > from && bytes[before - 1] === backslash) before--;
  return ((index - before) & 1) === 1;
}

/** Returns the index after the value that begins at `from`, in validated JSON that ends at `end`. */
export function skipValue(bytes: Buffer, from: number, end: number): number {
  const first = bytes[from]!;
  if (first === quote) return skipString(bytes, from);
  if (first !== 0x7b && first !== 0x5b) return skipScalar(bytes, from, end);
  let level = 0;
  let index = from;
  while (index < end) {
    const byte = bytes[index]!;
    if (byte === quote) {
      index = skipString(bytes, index);
      continue;
    }
    index++;
    // '[' and '{', ']' and '}' differ in one bit.
    if ((byte & 0xdf) === 0x5b) level++;
    else if ((byte & 0xdf) === 0x5d && --level === 0) return index;
  }
  return end;
}

function skipScalar(bytes: Buffer, from: number, end: number): number {
  let index = from;
  while (index < end) {
    const byte = bytes[index]!;
    if (byte === 0x2c || byte === 0x7d || byte === 0x5d || byte <= 0x20) break;
    index++;
  }
  return index;
}

/** Returns the index of the value after the key that ends at `keyEnd`, in validated JSON. */
export function skipColon(bytes: Buffer, keyEnd: number, end: number): number {
  return skipSpace(bytes, skipSpace(bytes, keyEnd, end) + 1, end);
}
