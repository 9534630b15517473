import type { IHeaders, KafkaMessage } from 'kafkajs';
import type { LogRecord } from '../event-log.ts';

/** A record with its raw key and headers, which may be any bytes, besides the decoded ones that the rest of Runlake uses. */
export interface KafkaRecord extends LogRecord {
  readonly raw: { readonly key: Buffer | null; readonly headers: IHeaders };
  /** Approximate size in memory. */
  readonly bytes: number;
}

const empty = Buffer.alloc(0);
const overheadBytes = 200;

/** Converts a fetched message. A message without a value gets an empty one; the sink sends that to the dead-letter queue. */
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
    value: value ?? empty,
    headers: texts,
    raw: { key, headers },
    bytes,
  };
}
