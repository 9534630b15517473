/**
 * JVM options for short-lived or lightly loaded processes. They halve the CPU time of the start: the JVM uses only the
 * first compiler tier and the serial garbage collector. A server under load would be slower.
 */
export const fastStartOptions: readonly string[] = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];
