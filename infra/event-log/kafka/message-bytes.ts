import type { Message } from 'kafkajs';

/** What a message costs in memory and on the wire beside its value and key. */
const overheadBytes = 100;

/** What a message takes up, roughly and rather too much. */
export function bytesOf({ key, value, headers }: Message): number {
  let bytes = overheadBytes + (key?.length ?? 0) + (value?.length ?? 0);
  for (const [name, text] of Object.entries(headers ?? {})) bytes += name.length + (text?.length ?? 0) * 2 + 10;
  return bytes;
}
