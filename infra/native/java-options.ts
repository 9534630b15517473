/**
 * For what runs for seconds, or has little to do: half the processor time until it answers, because it is compiled once and collects
 * its garbage by one thread. A server under load would be slower.
 */
export const startsSoon: readonly string[] = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC'];
