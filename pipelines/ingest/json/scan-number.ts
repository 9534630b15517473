import type { ScanOrigin } from './scan-origin.ts';

/** Validates the number whose first byte, `-` or a digit, is at `from`; returns the index after it. @throws INVALID_JSON */
export function scanNumber(origin: ScanOrigin, from: number): number {
  const { bytes, end } = origin;
  let index = from;
  if (bytes[index] === 0x2d) index++;
  if (index < end && bytes[index] === 0x30) {
    index++;
    if (index < end && isDigit(bytes[index]!)) return origin.fail(from, 'a number with a leading zero');
  } else index = scanDigits(origin, index);
  if (index < end && bytes[index] === 0x2e) index = scanDigits(origin, index + 1);
  if (index < end && (bytes[index]! | 0x20) === 0x65) {
    index++;
    if (index < end && (bytes[index] === 0x2b || bytes[index] === 0x2d)) index++;
    index = scanDigits(origin, index);
  }
  return index;
}

function scanDigits(origin: ScanOrigin, from: number): number {
  const { bytes, end } = origin;
  let index = from;
  while (index < end && isDigit(bytes[index]!)) index++;
  return index > from ? index : origin.unexpected(index, 'a digit');
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}
