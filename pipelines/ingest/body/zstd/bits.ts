import { corrupt } from './corrupt.ts';

/**
 * Position, in bits from `start`, after the last bit of a stream that is read backwards: its last byte ends with a one and
 * zeros above it, which only mark the end.
 */
export function lastBit(bytes: Buffer, start: number, end: number): number {
  const last = end > start ? bytes[end - 1]! : 0;
  if (last === 0) throw corrupt('a bit stream has no end mark');
  return (end - start) * 8 - 1 - (Math.clz32(last) - 24);
}

/**
 * The `count` bits, at most 25, from position `at` on in the stream that begins at byte `start`. The four bytes around
 * them have to exist: buffers of blocks have room before and after for that.
 */
export function bitsAt(bytes: Buffer, start: number, at: number, count: number): number {
  const byte = start + (at >> 3);
  const four = bytes[byte]! | (bytes[byte + 1]! << 8) | (bytes[byte + 2]! << 16) | (bytes[byte + 3]! << 24);
  return (four >>> (at & 7)) & ((1 << count) - 1);
}
