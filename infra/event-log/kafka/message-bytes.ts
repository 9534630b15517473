import type { Message } from 'kafkajs';

/** Approximate overhead of a message in memory and on the wire besides value, key and headers. */
const overheadBytes = 100;

/** Approximate size of a message; a little too high rather than too low. */
export function bytesOf({ key, value, headers }: Message): number {
  let bytes = overheadBytes + (key?.length ?? 0) + (value?.length ?? 0);
  for (const [name, text] of Object.entries(headers ?? {})) bytes += name.length + (text?.length ?? 0) * 2 + 10;
  return bytes;
}
