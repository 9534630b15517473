/**
 * Reads the dead-letter queues in Kafka: the topics `<topic>-dead-letters`. An id is `<topic>/<partition>/<offset>`,
 * where partition and offset are those of the dead-letter record itself.
 *
 * The client library reads only through consumer groups. Each query uses its own group, which commits nothing:
 *   1. Fetch the first and log-end offsets of the partitions, and choose the offset range to read of each.
 *   2. Join the group, seek each partition to the start of its range, and pause the other partitions.
 *   3. Read until every partition has reached the log-end offset of step 1.
 *   4. Leave the group and delete it.
 */
import { randomUUID } from 'node:crypto';
import type { Admin, KafkaMessage } from 'kafkajs';
import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import type { Logger } from '../../telemetry/logger.ts';
import {
  type DeadLetterFilter,
  type DeadLetterHead,
  type DeadLetterQueue,
  type DeadLetterRecord,
  maxCounted,
} from '../event-log.ts';
import { type KafkaAddress, KafkaAdmin } from './client.ts';
import { parseDeadLetter } from './dead-letter.ts';
import { type OffsetRange, readOffsets } from './read-offsets.ts';
import { type TopicNames, topicNames } from './topics.ts';

export interface KafkaDeadLetterQueueOptions {
  readonly config: KafkaAddress & Pick<Config, 'kafkaTopicPrefix'>;
  readonly topics: readonly Topic[];
  readonly logger: Logger;
}

const idPattern = /^([\w.-]+)\/(\d{1,9})\/(\d{1,15})$/;

/** Opens the dead-letter queues of a Kafka log. Connects on the first call. @throws TLS_FILE_UNUSABLE */
export function openKafkaDeadLetterQueue(options: KafkaDeadLetterQueueOptions): DeadLetterQueue {
  return new KafkaDeadLetterQueue(options);
}

class KafkaDeadLetterQueue implements DeadLetterQueue {
  readonly #options: KafkaDeadLetterQueueOptions;
  readonly #admin: KafkaAdmin;
  readonly #names: TopicNames;

  constructor(options: KafkaDeadLetterQueueOptions) {
    this.#options = options;
    this.#admin = new KafkaAdmin(options.config, options.logger);
    this.#names = topicNames(options.config.kafkaTopicPrefix);
  }

  async list(filter: DeadLetterFilter, limit: number): Promise<DeadLetterHead[]> {
    const ranges = await this.#admin.call((admin) => this.#chooseRanges(admin, filter, limit));
    const newest: DeadLetterHead[] = [];
    await this.#read(ranges, (topic, partition, message) => {
      const { value: _value, headers: _headers, ...head } = toDeadLetter(topic, partition, message);
      if (!fits(head, filter)) return;
      newest.push(head);
      // Bounds the memory however many records are read.
      if (newest.length > 2 * limit + 100) newest.sort(newestFirst).splice(limit);
    });
    return newest.sort(newestFirst).slice(0, limit);
  }

  async count(topic: Topic): Promise<number> {
    const offsets = await this.#admin.call((admin) => offsetsOf(admin, this.#names.deadLettersOf(topic)));
    const records = (offsets ?? []).reduce((sum, { low, high }) => sum + high - low, 0);
    return Math.min(records, maxCounted);
  }

  async find(id: string): Promise<DeadLetterRecord | undefined> {
    const [, name, partition, offset] = idPattern.exec(id) ?? [];
    const topic = this.#options.topics.find((known) => known.name === name);
    if (topic === undefined) return undefined;
    const range = { topic, partition: Number(partition), from: Number(offset), end: Number(offset) + 1 };
    const offsets = await this.#admin.call((admin) => offsetsOf(admin, this.#names.deadLettersOf(topic)));
    const bounds = offsets?.find((each) => each.partition === range.partition);
    if (bounds === undefined || range.from < bounds.low || range.end > bounds.high) return undefined;
    let found: DeadLetterRecord | undefined;
    await this.#read([range], (_topic, _partition, message) => {
      if (Number(message.offset) === range.from) found = toDeadLetter(topic, range.partition, message);
    });
    return found;
  }

  async close(): Promise<void> {
    await this.#admin.close();
  }

  /** Step 1. */
  async #chooseRanges(admin: Admin, filter: DeadLetterFilter, limit: number): Promise<TopicRange[]> {
    const ranges: TopicRange[] = [];
    for (const topic of filter.topics) {
      const name = this.#names.deadLettersOf(topic);
      for (const { partition, low, high } of (await offsetsOf(admin, name)) ?? []) {
        // A filter needs a full read: the step is only in the record, and the times come from clocks that differ slightly.
        const any = filter.step === undefined && filter.sinceMs === undefined && filter.untilMs === undefined;
        const from = any ? Math.max(low, high - limit) : low;
        if (from < high) ranges.push({ topic, partition, from, end: high });
      }
    }
    return ranges;
  }

  /** Steps 2 to 4. */
  async #read(
    ranges: readonly TopicRange[],
    onMessage: (topic: Topic, partition: number, message: KafkaMessage) => void,
  ): Promise<void> {
    if (ranges.length === 0) return;
    const { config, logger } = this.#options;
    const topics = new Map(ranges.map(({ topic }) => [this.#names.deadLettersOf(topic), topic]));
    const groupId = this.#names.group(`dead-letter-readers-${randomUUID()}`);
    await readOffsets(
      { address: config, logger, groupId },
      ranges.map(({ topic, ...range }): OffsetRange => ({ ...range, topic: this.#names.deadLettersOf(topic) })),
      (name, partition, message) => onMessage(topics.get(name) as Topic, partition, message),
    );
    await this.#admin.call((admin) => admin.deleteGroups([groupId])).catch(() => undefined);
  }
}

interface TopicRange extends Omit<OffsetRange, 'topic'> {
  readonly topic: Topic;
}

/**
 * First and log-end offset of each partition; undefined if the topic does not exist because no record was ever written to it.
 */
async function offsetsOf(admin: Admin, name: string) {
  if (!(await admin.listTopics()).includes(name)) return undefined;
  const offsets = await admin.fetchTopicOffsets(name);
  return offsets.map(({ partition, low, high }) => ({ partition, low: Number(low), high: Number(high) }));
}

/**
 * Converts a record of the queue. A record without dead-letter headers was not written by Runlake and is returned as it is.
 */
function toDeadLetter(topic: Topic, partition: number, message: KafkaMessage): DeadLetterRecord {
  const parsed = parseDeadLetter(message);
  const value = parsed?.value ?? message.value ?? Buffer.alloc(0);
  return {
    id: `${topic.name}/${partition}/${message.offset}`,
    topic: topic.name,
    partition: parsed?.partition ?? partition,
    offset: parsed?.offset ?? Number(message.offset),
    key: message.key?.toString() ?? '',
    sizeBytes: value.length,
    reason: parsed?.reason ?? 'unknown: Runlake did not write this record',
    step: parsed?.step ?? '',
    deadAtMs: parsed?.deadAt.getTime() || Number(message.timestamp),
    value,
    headers: Object.fromEntries(
      Object.entries(parsed?.headers ?? {}).map(([name, given]) => [
        name,
        String(Array.isArray(given) ? given.at(-1) : given),
      ]),
    ),
  };
}

function fits(head: DeadLetterHead, { step, sinceMs, untilMs }: DeadLetterFilter): boolean {
  return (
    (step === undefined || head.step === step) &&
    (sinceMs === undefined || head.deadAtMs >= sinceMs) &&
    (untilMs === undefined || head.deadAtMs <= untilMs)
  );
}

function newestFirst(a: DeadLetterHead, b: DeadLetterHead): number {
  return b.deadAtMs - a.deadAtMs || b.id.localeCompare(a.id, 'en', { numeric: true });
}
