import { corrupt } from './corrupt.ts';

/**
 * Position, in bits from `start`, after the last data bit of a bit stream that is read backwards. The highest set bit
 * of the last byte is the end mark.
 */
export function lastBit(bytes: Buffer, start: number, end: number): number {
  const last = end > start ? bytes[end - 1]! : 0;
  if (last === 0) throw corrupt('a bit stream has no end mark');
  return (end - start) * 8 - 1 - (Math.clz32(last) - 24);
}

/**
 * Reads `count` bits, at most 25, at bit position `at` of the stream that begins at byte `start`. The four bytes around
 * them must exist: block buffers have padding on both sides for this.
 */
export function bitsAt(bytes: Buffer, start: number, at: number, count: number): number {
  const byte = start + (at >> 3);
  const four = bytes[byte]! | (bytes[byte + 1]! << 8) | (bytes[byte + 2]! << 16) | (bytes[byte + 3]! << 24);
  return (four >>> (at & 7)) & ((1 << count) - 1);
}
