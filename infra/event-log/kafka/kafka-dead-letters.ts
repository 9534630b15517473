/**
 * The dead letters in Kafka: records of the topics `<topic>-dead-letters`. Ids are `<topic>/<partition>/<offset>`, the place of
 * the letter itself.
 *
 * Reading needs a consumer group, for the client knows no other way. Each question has one of its own, which commits nothing:
 *   1. The ends of the partitions are asked for, and which offsets are wanted of each.
 *   2. A group is joined, each wanted partition is set to its first offset; the others stay paused.
 *   3. Records are taken until every wanted partition has reached its end as it stood at step 1.
 *   4. The group is left and deleted.
 */
import { randomUUID } from 'node:crypto';
import type { Admin, KafkaMessage } from 'kafkajs';
import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import type { Logger } from '../../telemetry/logger.ts';
import {
  type DeadLetter,
  type DeadLetterHead,
  type DeadLetters,
  type LetterFilter,
  mostCounted,
} from '../dead-letters.ts';
import { AdminLink } from './admin-link.ts';
import { readLetter } from './dead-letter.ts';
import type { KafkaAddress } from './kafka-client.ts';
import { readOffsets, type Wanted } from './read-offsets.ts';
import { type TopicNames, topicNames } from './topic-names.ts';

export interface KafkaDeadLettersOptions {
  readonly config: KafkaAddress & Pick<Config, 'kafkaTopicPrefix'>;
  readonly topics: readonly Topic[];
  readonly logger: Logger;
}

const idPattern = /^([\w.-]+)\/(\d{1,9})\/(\d{1,15})$/;

/** Opens the dead letters of a Kafka log. Connects at the first question. @throws TLS_FILE_UNUSABLE */
export function openKafkaDeadLetters(options: KafkaDeadLettersOptions): DeadLetters {
  return new KafkaDeadLetters(options);
}

class KafkaDeadLetters implements DeadLetters {
  readonly #options: KafkaDeadLettersOptions;
  readonly #admin: AdminLink;
  readonly #names: TopicNames;

  constructor(options: KafkaDeadLettersOptions) {
    this.#options = options;
    this.#admin = new AdminLink(options.config, options.logger);
    this.#names = topicNames(options.config.kafkaTopicPrefix);
  }

  async list(filter: LetterFilter, limit: number): Promise<DeadLetterHead[]> {
    const wanted = await this.#admin.ask((admin) => this.#wantedBy(admin, filter, limit));
    const newest: DeadLetterHead[] = [];
    await this.#read(wanted, (topic, partition, message) => {
      const { value: _value, headers: _headers, ...head } = letterOf(topic, partition, message);
      if (!fits(head, filter)) return;
      newest.push(head);
      // What is kept stays small however much is read.
      if (newest.length > 2 * limit + 100) newest.sort(newestFirst).splice(limit);
    });
    return newest.sort(newestFirst).slice(0, limit);
  }

  async count(topic: Topic): Promise<number> {
    const offsets = await this.#admin.ask((admin) => offsetsOf(admin, this.#names.deadLettersOf(topic)));
    const letters = (offsets ?? []).reduce((sum, { low, high }) => sum + high - low, 0);
    return Math.min(letters, mostCounted);
  }

  async find(id: string): Promise<DeadLetter | undefined> {
    const [, name, partition, offset] = idPattern.exec(id) ?? [];
    const topic = this.#options.topics.find((known) => known.name === name);
    if (topic === undefined) return undefined;
    const place = { topic, partition: Number(partition), from: Number(offset), end: Number(offset) + 1 };
    const there = await this.#admin.ask((admin) => offsetsOf(admin, this.#names.deadLettersOf(topic)));
    const bounds = there?.find((each) => each.partition === place.partition);
    if (bounds === undefined || place.from < bounds.low || place.end > bounds.high) return undefined;
    let found: DeadLetter | undefined;
    await this.#read([place], (_topic, _partition, message) => {
      if (Number(message.offset) === place.from) found = letterOf(topic, place.partition, message);
    });
    return found;
  }

  async close(): Promise<void> {
    await this.#admin.close();
  }

  /** Step 1. */
  async #wantedBy(admin: Admin, filter: LetterFilter, limit: number): Promise<WantedOfTopic[]> {
    const wanted: WantedOfTopic[] = [];
    for (const topic of filter.topics) {
      const name = this.#names.deadLettersOf(topic);
      for (const { partition, low, high } of (await offsetsOf(admin, name)) ?? []) {
        // A step is told by the record alone, and letters are stamped by clocks that differ a little: then all are read.
        const any = filter.step === undefined && filter.sinceMs === undefined && filter.untilMs === undefined;
        const from = any ? Math.max(low, high - limit) : low;
        if (from < high) wanted.push({ topic, partition, from, end: high });
      }
    }
    return wanted;
  }

  /** Steps 2 to 4. */
  async #read(
    wanted: readonly WantedOfTopic[],
    take: (topic: Topic, partition: number, message: KafkaMessage) => void,
  ): Promise<void> {
    if (wanted.length === 0) return;
    const { config, logger } = this.#options;
    const topics = new Map(wanted.map(({ topic }) => [this.#names.deadLettersOf(topic), topic]));
    const groupId = this.#names.group(`dead-letter-readers-${randomUUID()}`);
    await readOffsets(
      { address: config, logger, groupId },
      wanted.map(({ topic, ...range }): Wanted => ({ ...range, topic: this.#names.deadLettersOf(topic) })),
      (name, partition, message) => take(topics.get(name) as Topic, partition, message),
    );
    await this.#admin.ask((admin) => admin.deleteGroups([groupId])).catch(() => undefined);
  }
}

interface WantedOfTopic extends Omit<Wanted, 'topic'> {
  readonly topic: Topic;
}

/** First and next offset of each partition; undefined where the topic does not exist, for no letter was ever written to it. */
async function offsetsOf(admin: Admin, name: string) {
  if (!(await admin.listTopics()).includes(name)) return undefined;
  const offsets = await admin.fetchTopicOffsets(name);
  return offsets.map(({ partition, low, high }) => ({ partition, low: Number(low), high: Number(high) }));
}

/** A record without the headers of a dead letter was put there by somebody else; it is shown as it is. */
function letterOf(topic: Topic, partition: number, message: KafkaMessage): DeadLetter {
  const letter = readLetter(message);
  const value = letter?.value ?? message.value ?? Buffer.alloc(0);
  return {
    id: `${topic.name}/${partition}/${message.offset}`,
    topic: topic.name,
    partition: letter?.partition ?? partition,
    offset: letter?.offset ?? Number(message.offset),
    key: message.key?.toString() ?? '',
    sizeBytes: value.length,
    reason: letter?.reason ?? 'it does not say why: Runlake did not put it there',
    step: letter?.step ?? '',
    deadAtMs: letter?.deadAt.getTime() || Number(message.timestamp),
    value,
    headers: Object.fromEntries(
      Object.entries(letter?.headers ?? {}).map(([name, given]) => [
        name,
        String(Array.isArray(given) ? given.at(-1) : given),
      ]),
    ),
  };
}

function fits(head: DeadLetterHead, { step, sinceMs, untilMs }: LetterFilter): boolean {
  return (
    (step === undefined || head.step === step) &&
    (sinceMs === undefined || head.deadAtMs >= sinceMs) &&
    (untilMs === undefined || head.deadAtMs <= untilMs)
  );
}

function newestFirst(a: DeadLetterHead, b: DeadLetterHead): number {
  return b.deadAtMs - a.deadAtMs || b.id.localeCompare(a.id, 'en', { numeric: true });
}
