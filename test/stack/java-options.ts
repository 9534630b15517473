/**
 * JVM options for short-lived or lightly loaded processes: they halve the CPU time of the start by using only the first
 * compiler tier and the serial garbage collector. A server under load would be slower.
 */
export const startsSoon: readonly string[] = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];
