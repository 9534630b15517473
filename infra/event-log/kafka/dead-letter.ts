import type { IHeaders, KafkaMessage, Message } from 'kafkajs';
import type { LogRecord } from '../event-log.ts';
import type { KafkaRecord } from './record-buffer.ts';

/** Headers of a dead-letter record: why the record was refused, and its topic, partition and offset. */
export const deadLetterHeaders = {
  reason: 'runlake-dlq-reason',
  step: 'runlake-dlq-step',
  topic: 'runlake-dlq-topic',
  partition: 'runlake-dlq-partition',
  offset: 'runlake-dlq-offset',
  /** ISO 8601, UTC. */
  time: 'runlake-dlq-time',
} as const;

const maxReasonCharacters = 2_000;

/** Builds the dead-letter record: original bytes, key and headers, plus the reason and the original position in headers. */
export function deadLetterMessage(topic: string, record: LogRecord, reason: string, step: string): Message {
  const { raw } = record as Partial<KafkaRecord>;
  return {
    key: raw ? raw.key : record.key,
    value: record.value,
    headers: {
      ...(raw?.headers ?? record.headers),
      [deadLetterHeaders.reason]: reason.slice(0, maxReasonCharacters),
      [deadLetterHeaders.step]: step,
      [deadLetterHeaders.topic]: topic,
      [deadLetterHeaders.partition]: String(record.partition),
      [deadLetterHeaders.offset]: String(record.offset),
      [deadLetterHeaders.time]: new Date().toISOString(),
    },
  };
}

/** A dead-letter record as stored in Kafka. A retry after a crash may have left two of one event. */
export interface ParsedDeadLetter {
  /** Kafka name of the original topic; partition and offset refer to it. */
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

/** @returns undefined if the message does not have the dead-letter headers. */
export function parseDeadLetter({ key, value, headers = {} }: KafkaMessage): ParsedDeadLetter | undefined {
  const text = (name: string) => headers[name]?.toString();
  const [topic, partition, offset] = [
    deadLetterHeaders.topic,
    deadLetterHeaders.partition,
    deadLetterHeaders.offset,
  ].map(text);
  if (topic === undefined || partition === undefined || offset === undefined) return undefined;
  const ours = new Set<string>(Object.values(deadLetterHeaders));
  return {
    topic,
    partition: Number(partition),
    offset: Number(offset),
    reason: text(deadLetterHeaders.reason) ?? '',
    step: text(deadLetterHeaders.step) ?? '',
    deadAt: new Date(text(deadLetterHeaders.time) ?? 0),
    key,
    value: value ?? Buffer.alloc(0),
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !ours.has(name))),
  };
}
