/**
 * The dead-letter queues in Kafka: the topics `<topic>-dead-letters`. An id is `<topic>/<partition>/<offset>`, where
 * partition and offset are those of the dead-letter record itself.
 *
 * The client library reads only through consumer groups. Each query uses a separate group, which commits nothing:
 *   1. Fetch the first and log-end offsets of the partitions, and choose the offset range to read from each.
 *   2. Join the group, seek each partition to the start of its range, and pause the other partitions.
 *   3. Read until every partition has reached the log-end offset of step 1.
 *   4. Leave the group and delete it.
 */
import { randomUUID } from 'node:crypto';
import type { Admin, IHeaders, KafkaMessage, Message } from 'kafkajs';
import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import {
  type DeadLetterFilter,
  type DeadLetterHead,
  type DeadLetterQueue,
  type DeadLetterRange,
  type DeadLetterRecord,
  type LogRecord,
  maxCountedDeadLetters,
  versionHeader,
} from '../event-log.ts';
import { type KafkaAddress, KafkaAdmin, openKafkaClient, toKafkaError } from './client.ts';
import type { KafkaRecord } from './record-buffer.ts';
import { buildTopicNames, type TopicNames } from './topics.ts';

/**
 * Headers that are added to a dead-letter record: the reason for the refusal, and the original topic, partition and
 * offset.
 */
const deadLetterHeaders = {
  reason: 'runlake-dlq-reason',
  step: 'runlake-dlq-step',
  topic: 'runlake-dlq-topic',
  partition: 'runlake-dlq-partition',
  offset: 'runlake-dlq-offset',
  /** ISO 8601, UTC. */
  time: 'runlake-dlq-time',
} as const;

const maxReasonCharacters = 2_000;

/**
 * Builds the dead-letter record: original bytes, key and headers, plus the reason and the original position in headers.
 */
export function buildDeadLetterMessage(topic: string, record: LogRecord, reason: string, step: string): Message {
  const { raw } = record as Partial<KafkaRecord>;
  return {
    key: raw ? raw.key : record.key,
    value: record.value,
    headers: {
      ...(raw === undefined ? record.headers : fillEmptyHeaders(raw.headers)),
      [versionHeader]: String(record.version),
      [deadLetterHeaders.reason]: reason.slice(0, maxReasonCharacters),
      [deadLetterHeaders.step]: step,
      [deadLetterHeaders.topic]: topic,
      [deadLetterHeaders.partition]: String(record.partition),
      [deadLetterHeaders.offset]: String(record.offset),
      [deadLetterHeaders.time]: new Date().toISOString(),
    },
  };
}

/** Gives headers without a value an empty one: the client reads them, and fails if it is to send them. */
function fillEmptyHeaders(headers: IHeaders): IHeaders {
  const fill = (value: Buffer | string | undefined) => value ?? '';
  return Object.fromEntries(
    Object.entries(headers).map(([name, given]) => [name, Array.isArray(given) ? given.map(fill) : fill(given)]),
  );
}

export interface KafkaDeadLetterQueueOptions {
  readonly config: KafkaAddress & Pick<Config, 'kafkaTopicPrefix'>;
  readonly topics: readonly Topic[];
  readonly logger: Logger;
  /** Counts the replayed records in ranges of offsets of the dead-letter queue of a topic. */
  readonly countReplays: (topic: Topic, ranges: readonly DeadLetterRange[]) => Promise<number>;
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
    this.#names = buildTopicNames(options.config.kafkaTopicPrefix);
  }

  async list(filter: DeadLetterFilter, limit: number): Promise<DeadLetterHead[]> {
    const ranges = await this.#admin.call((admin) => this.#chooseRanges(admin, filter, limit));
    const newest: DeadLetterHead[] = [];
    await this.#read(ranges, async (topic, partition, message) => {
      const { value: _value, headers: _headers, ...head } = toDeadLetter(topic, partition, message);
      if (!matchesFilter(head, filter)) return;
      newest.push(head);
      // Limit the memory use, regardless of the number of records.
      if (newest.length > 2 * limit + 100) newest.sort(compareNewestFirst).splice(limit);
    });
    return newest.sort(compareNewestFirst).slice(0, limit);
  }

  async countUnreplayed(topic: Topic): Promise<number> {
    const ranges = await this.#admin.call((admin) => fetchOffsets(admin, this.#names.deadLetterTopic(topic)));
    const records = (ranges ?? []).reduce((sum, { low, high }) => sum + high - low, 0);
    if (ranges === undefined || records === 0) return 0;
    return Math.min(records - (await this.#options.countReplays(topic, ranges)), maxCountedDeadLetters);
  }

  async find(id: string): Promise<DeadLetterRecord | undefined> {
    let found: DeadLetterRecord | undefined;
    await this.read([id], async (record) => {
      found = record;
    });
    return found;
  }

  async read(ids: readonly string[], use: (record: DeadLetterRecord) => Promise<void>): Promise<void> {
    const wanted = new Set(ids);
    const ranges = await this.#admin.call((admin) => this.#chooseRangesOf(admin, wanted));
    await this.#read(ranges, async (topic, partition, message) => {
      // If Kafka reassigns the partition, it is read again from the start of its range.
      if (wanted.delete(formatId(topic, partition, message.offset))) await use(toDeadLetter(topic, partition, message));
    });
  }

  async close(): Promise<void> {
    await this.#admin.close();
  }

  /** Step 1 of the header comment: chooses the offset range to read from each partition. */
  async #chooseRanges(admin: Admin, filter: DeadLetterFilter, limit: number): Promise<TopicRange[]> {
    const ranges: TopicRange[] = [];
    for (const topic of filter.topics) {
      const name = this.#names.deadLetterTopic(topic);
      for (const { partition, low, high } of (await fetchOffsets(admin, name)) ?? []) {
        // With a filter, read all records: the step is known only from the records, and their times come from clocks
        // that differ slightly.
        const isUnfiltered = filter.step === undefined && filter.sinceMs === undefined && filter.untilMs === undefined;
        const from = isUnfiltered ? Math.max(low, high - limit) : low;
        if (from < high) ranges.push({ topic, partition, from, end: high });
      }
    }
    return ranges;
  }

  /** Step 1 of the header comment: chooses, for each partition, the smallest offset range with all its records in `ids`. */
  async #chooseRangesOf(admin: Admin, ids: ReadonlySet<string>): Promise<TopicRange[]> {
    const ranges: TopicRange[] = [];
    const positions = [...ids].map((id) => idPattern.exec(id) ?? []);
    for (const topic of this.#options.topics) {
      const ofTopic = positions.filter(([, name]) => name === topic.name);
      if (ofTopic.length === 0) continue;
      const bounds = (await fetchOffsets(admin, this.#names.deadLetterTopic(topic))) ?? [];
      for (const { partition, low, high } of bounds) {
        const offsets = ofTopic
          .filter(([, , number]) => Number(number) === partition)
          .map(([, , , offset]) => Number(offset))
          .filter((offset) => offset >= low && offset < high);
        if (offsets.length === 0) continue;
        ranges.push({ topic, partition, from: Math.min(...offsets), end: Math.max(...offsets) + 1 });
      }
    }
    return ranges;
  }

  /** Steps 2 to 4 of the header comment: reads the offset ranges in a temporary consumer group. */
  async #read(
    ranges: readonly TopicRange[],
    onMessage: (topic: Topic, partition: number, message: KafkaMessage) => Promise<void>,
  ): Promise<void> {
    if (ranges.length === 0) return;
    const { config, logger } = this.#options;
    const topics = new Map(ranges.map(({ topic }) => [this.#names.deadLetterTopic(topic), topic]));
    const groupId = this.#names.group(`dead-letter-readers-${randomUUID()}`);
    await readOffsets(
      { address: config, logger, groupId },
      ranges.map(({ topic, ...range }): OffsetRange => ({ ...range, topic: this.#names.deadLetterTopic(topic) })),
      (name, partition, message) => onMessage(topics.get(name) as Topic, partition, message),
    );
    await this.#admin.call((admin) => admin.deleteGroups([groupId])).catch(() => undefined);
  }
}

interface TopicRange extends Omit<OffsetRange, 'topic'> {
  readonly topic: Topic;
}

/**
 * Returns the first and the log-end offset of each partition; undefined if the topic does not exist because no record
 * was ever written to it.
 */
async function fetchOffsets(admin: Admin, name: string): Promise<DeadLetterRange[] | undefined> {
  if (!(await admin.listTopics()).includes(name)) return undefined;
  const offsets = await admin.fetchTopicOffsets(name);
  return offsets.map(({ partition, low, high }) => ({ partition, low: Number(low), high: Number(high) }));
}

/**
 * Converts a record of the queue. A record without dead-letter headers was not written by Runlake; its result has its
 * own position and a fixed reason.
 */
function toDeadLetter(topic: Topic, partition: number, message: KafkaMessage): DeadLetterRecord {
  const { key, headers = {}, offset, timestamp } = message;
  const value = message.value ?? Buffer.alloc(0);
  const readHeader = (name: keyof typeof deadLetterHeaders) => headers[deadLetterHeaders[name]]?.toString();
  const record = {
    id: formatId(topic, partition, offset),
    topic: topic.name,
    key: key?.toString() ?? '',
    sizeBytes: value.length,
    value,
  };
  const [originalPartition, originalOffset] = [readHeader('partition'), readHeader('offset')];
  if (readHeader('topic') === undefined || originalPartition === undefined || originalOffset === undefined) {
    const reason = 'unknown: Runlake did not write this record';
    const deadLetteredAtMs = Number(timestamp);
    return { ...record, partition, offset: Number(offset), reason, step: '', deadLetteredAtMs, headers: {} };
  }
  const runlakeHeaders = new Set<string>(Object.values(deadLetterHeaders));
  const originalHeaders = Object.entries(headers).filter(([name]) => !runlakeHeaders.has(name));
  return {
    ...record,
    partition: Number(originalPartition),
    offset: Number(originalOffset),
    reason: readHeader('reason') ?? '',
    step: readHeader('step') ?? '',
    deadLetteredAtMs: Date.parse(readHeader('time') ?? '') || Number(timestamp),
    headers: Object.fromEntries(
      originalHeaders.map(([name, given]) => [name, String(Array.isArray(given) ? given.at(-1) : given)]),
    ),
  };
}

const formatId = ({ name }: Topic, partition: number, offset: string) => `${name}/${partition}/${offset}`;

function matchesFilter(head: DeadLetterHead, { step, sinceMs, untilMs }: DeadLetterFilter): boolean {
  return (
    (step === undefined || head.step === step) &&
    (sinceMs === undefined || head.deadLetteredAtMs >= sinceMs) &&
    (untilMs === undefined || head.deadLetteredAtMs <= untilMs)
  );
}

function compareNewestFirst(a: DeadLetterHead, b: DeadLetterHead): number {
  return b.deadLetteredAtMs - a.deadLetteredAtMs || b.id.localeCompare(a.id, 'en', { numeric: true });
}

/** Offset range of one partition; `from` is included, `end` is excluded. */
interface OffsetRange {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly end: number;
}

const requestTimeoutMs = 10_000;
/**
 * A read fails after this time without progress. The timeout is long because the broker delays the first join and a
 * record may be large.
 */
const stallTimeoutMs = 30_000;
const maxFetchBytes = 4 * 1024 * 1024;

/**
 * Reads the offset ranges, in order within each partition, in the consumer group `groupId`. Commits nothing.
 * @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE
 */
async function readOffsets(
  { address, logger, groupId }: { readonly address: KafkaAddress; readonly logger: Logger; readonly groupId: string },
  ranges: readonly OffsetRange[],
  onMessage: (topic: string, partition: number, message: KafkaMessage) => Promise<void>,
): Promise<void> {
  const client = openKafkaClient(address, requestTimeoutMs, logger);
  const consumer = client.kafka.consumer({
    groupId,
    maxBytes: maxFetchBytes,
    maxBytesPerPartition: maxFetchBytes,
    maxWaitTimeInMs: 200,
    allowAutoTopicCreation: false,
  });
  const openRanges = new Map(ranges.map((range) => [formatPartitionKey(range), range]));
  let finish: (error?: unknown) => void = () => undefined;
  let lastProgressMs = performance.now();
  const finished = new Promise<void>((resolve, reject) => {
    finish = (error) => (error === undefined ? resolve() : reject(error));
  });
  finished.catch(() => undefined);
  const watch = setInterval(() => {
    if (performance.now() - lastProgressMs < stallTimeoutMs) return;
    const brokers = address.kafkaBrokers ?? '';
    finish(runlakeError('KAFKA_UNAVAILABLE', { brokers, reason: `nothing was read for ${stallTimeoutMs} ms` }));
  }, 1_000);
  try {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) finish(payload.error);
    });
    // Wait for the join, because the library ignores a seek that precedes the partition assignment.
    consumer.on(consumer.events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
      for (const [topic, partitions] of Object.entries(memberAssignment)) {
        for (const partition of partitions) {
          const range = openRanges.get(formatPartitionKey({ topic, partition }));
          if (range === undefined) consumer.pause([{ topic, partitions: [partition] }]);
          else consumer.seek({ topic, partition, offset: String(range.from) });
        }
      }
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [...new Set(ranges.map(({ topic }) => topic))], fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async ({ batch, heartbeat }) => {
        lastProgressMs = performance.now();
        const { topic, partition } = batch;
        const range = openRanges.get(formatPartitionKey({ topic, partition }));
        if (range === undefined) return;
        for (const message of batch.messages) {
          const offset = Number(message.offset);
          if (offset < range.from || offset >= range.end) continue;
          // The caller may take longer than the read may stall.
          lastProgressMs = Number.POSITIVE_INFINITY;
          try {
            await onMessage(topic, partition, message);
          } catch (error) {
            // The library would repeat the batch.
            openRanges.clear();
            finish(error);
            return;
          }
          lastProgressMs = performance.now();
          await heartbeat();
        }
        // Use the last offset of the batch, not of its messages: a batch may end with a control record, not a message.
        if (Number(batch.lastOffset()) + 1 < range.end) return;
        openRanges.delete(formatPartitionKey(range));
        consumer.pause([{ topic, partitions: [partition] }]);
        if (openRanges.size === 0) finish();
      },
    });
    await finished;
  } catch (error) {
    throw toKafkaError(error, address.kafkaBrokers);
  } finally {
    clearInterval(watch);
    await settlesBeforeTimeout(consumer.disconnect(), 5_000);
    client.fence();
  }
}

function formatPartitionKey({ topic, partition }: Pick<OffsetRange, 'topic' | 'partition'>): string {
  return `${topic}/${partition}`;
}
