import type { IHeaders, KafkaMessage, Message } from 'kafkajs';
import type { LogRecord } from '../event-log.ts';
import type { KafkaRecord } from './record-of.ts';

/** Headers that say why a record is among the dead letters, and where it stood. */
export const letterHeaders = {
  reason: 'runlake-dlq-reason',
  step: 'runlake-dlq-step',
  topic: 'runlake-dlq-topic',
  partition: 'runlake-dlq-partition',
  offset: 'runlake-dlq-offset',
  /** ISO 8601, UTC. */
  time: 'runlake-dlq-time',
} as const;

const longestReason = 2_000;

/** A record with its original bytes, key and headers, and beside them why it is set aside. */
export function letterOf(topic: string, record: LogRecord, reason: string, step: string): Message {
  const { raw } = record as Partial<KafkaRecord>;
  return {
    key: raw ? raw.key : record.key,
    value: record.value,
    headers: {
      ...(raw?.headers ?? record.headers),
      [letterHeaders.reason]: reason.slice(0, longestReason),
      [letterHeaders.step]: step,
      [letterHeaders.topic]: topic,
      [letterHeaders.partition]: String(record.partition),
      [letterHeaders.offset]: String(record.offset),
      [letterHeaders.time]: new Date().toISOString(),
    },
  };
}

/** A dead letter as it lies in Kafka. A repeat after a crash may have left two of one record. */
export interface ReadLetter {
  /** The topic it came from, as it is called in Kafka, and its place there. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly reason: string;
  readonly step: string;
  readonly deadAt: Date;
  readonly key: Buffer | null;
  readonly value: Buffer;
  /** The original headers. */
  readonly headers: IHeaders;
}

/** @returns undefined where the message does not have the headers of a dead letter. */
export function readLetter({ key, value, headers = {} }: KafkaMessage): ReadLetter | undefined {
  const text = (name: string) => headers[name]?.toString();
  const [topic, partition, offset] = [letterHeaders.topic, letterHeaders.partition, letterHeaders.offset].map(text);
  if (topic === undefined || partition === undefined || offset === undefined) return undefined;
  const ours = new Set<string>(Object.values(letterHeaders));
  return {
    topic,
    partition: Number(partition),
    offset: Number(offset),
    reason: text(letterHeaders.reason) ?? '',
    step: text(letterHeaders.step) ?? '',
    deadAt: new Date(text(letterHeaders.time) ?? 0),
    key,
    value: value ?? Buffer.alloc(0),
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !ours.has(name))),
  };
}
