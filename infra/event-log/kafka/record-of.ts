import type { IHeaders, KafkaMessage } from 'kafkajs';
import type { LogRecord } from '../event-log.ts';

/** A record as it came, beside what the rest of Runlake sees of it: keys and headers of strangers may be any bytes. */
export interface KafkaRecord extends LogRecord {
  readonly raw: { readonly key: Buffer | null; readonly headers: IHeaders };
  /** What it takes up in memory. */
  readonly bytes: number;
}

const nothing = Buffer.alloc(0);
const overheadBytes = 200;

/** A record without a value becomes one with no bytes, which is no record in the wire format: poison, and no crash. */
export function recordOf(partition: number, message: KafkaMessage): KafkaRecord {
  const { key, value, headers = {} } = message;
  const texts: Record<string, string> = {};
  let bytes = overheadBytes + (key?.length ?? 0) + (value?.length ?? 0);
  for (const [name, given] of Object.entries(headers)) {
    const one = Array.isArray(given) ? given.at(-1) : given;
    if (one === undefined) continue;
    texts[name] = one.toString();
    bytes += name.length + one.length;
  }
  return {
    partition,
    offset: Number(message.offset),
    key: key?.toString() ?? '',
    value: value ?? nothing,
    headers: texts,
    raw: { key, headers },
    bytes,
  };
}
