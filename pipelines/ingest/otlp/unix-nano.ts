/** Converts nanoseconds, given as unsigned 32-bit halves, to whole microseconds. Exact until the year 2255. */
export function microsOfNanos(low: number, high: number): number {
  // 2^32 = 4294967 * 1000 + 296: dividing the halves separately keeps every step below 2^53.
  return high * 4_294_967 + Math.floor((high * 296 + low) / 1000);
}
