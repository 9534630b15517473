import type { KafkaMessage } from 'kafkajs';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import { type KafkaAddress, kafkaError, openKafkaClient } from './client.ts';

/** Offset range of one partition: from `from` up to but excluding `end`. */
export interface OffsetRange {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly end: number;
}

const requestTimeoutMs = 10_000;
/** Fails after this time without progress. The broker delays the first join, and a record may be large. */
const silenceMs = 30_000;
const fetchBytes = 4 * 1024 * 1024;

/**
 * Reads the offset ranges, in order within each partition, in the consumer group `groupId`. Commits nothing.
 * @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE
 */
export async function readOffsets(
  { address, logger, groupId }: { readonly address: KafkaAddress; readonly logger: Logger; readonly groupId: string },
  ranges: readonly OffsetRange[],
  onMessage: (topic: string, partition: number, message: KafkaMessage) => void,
): Promise<void> {
  const client = openKafkaClient(address, requestTimeoutMs, logger);
  const consumer = client.kafka.consumer({
    groupId,
    maxBytes: fetchBytes,
    maxBytesPerPartition: fetchBytes,
    maxWaitTimeInMs: 200,
    allowAutoTopicCreation: false,
  });
  const open = new Map(ranges.map((range) => [partitionKey(range), range]));
  let finish: (error?: unknown) => void = () => undefined;
  let lastProgressMs = performance.now();
  const finished = new Promise<void>((resolve, reject) => {
    finish = (error) => (error === undefined ? resolve() : reject(error));
  });
  finished.catch(() => undefined);
  const watch = setInterval(() => {
    if (performance.now() - lastProgressMs < silenceMs) return;
    const brokers = address.kafkaBrokers ?? '';
    finish(runlakeError('KAFKA_UNAVAILABLE', { brokers, reason: `nothing was read for ${silenceMs} ms` }));
  }, 1_000);
  try {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) finish(payload.error);
    });
    // The library drops a seek that comes before it has its partitions, so wait for the join.
    consumer.on(consumer.events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
      for (const [topic, partitions] of Object.entries(memberAssignment)) {
        for (const partition of partitions) {
          const range = open.get(partitionKey({ topic, partition }));
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
      eachBatch: async ({ batch }) => {
        lastProgressMs = performance.now();
        const { topic, partition } = batch;
        const range = open.get(partitionKey({ topic, partition }));
        if (range === undefined) return;
        for (const message of batch.messages) {
          const offset = Number(message.offset);
          if (offset >= range.from && offset < range.end) onMessage(topic, partition, message);
        }
        // Use the last offset of the batch, not of its records: a control record ends a batch without a message.
        if (Number(batch.lastOffset()) + 1 < range.end) return;
        open.delete(partitionKey(range));
        consumer.pause([{ topic, partitions: [partition] }]);
        if (open.size === 0) finish();
      },
    });
    await finished;
  } catch (error) {
    throw kafkaError(error, address.kafkaBrokers);
  } finally {
    clearInterval(watch);
    await settlesBeforeTimeout(consumer.disconnect(), 5_000);
    client.fence();
  }
}

function partitionKey({ topic, partition }: Pick<OffsetRange, 'topic' | 'partition'>): string {
  return `${topic}/${partition}`;
}
