import type { KafkaMessage } from 'kafkajs';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { kafkaFault } from './client-fault.ts';
import { type KafkaAddress, openKafkaClient } from './kafka-client.ts';
import { endsWithin } from './pause.ts';

/** Offsets of one partition: `from` and those up to, not with, `end`. */
export interface Wanted {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
  readonly end: number;
}

const requestTimeoutMs = 10_000;
/** A broker waits for others to join, and a record may be large; without progress for this long it is given up. */
const silenceMs = 30_000;
const fetchBytes = 4 * 1024 * 1024;

/**
 * Reads the wanted offsets, in order within a partition, under a group of that name. Commits nothing.
 * @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE
 */
export async function readOffsets(
  { address, logger, groupId }: { readonly address: KafkaAddress; readonly logger: Logger; readonly groupId: string },
  wanted: readonly Wanted[],
  take: (topic: string, partition: number, message: KafkaMessage) => void,
): Promise<void> {
  const client = openKafkaClient(address, requestTimeoutMs, logger);
  const consumer = client.kafka.consumer({
    groupId,
    maxBytes: fetchBytes,
    maxBytesPerPartition: fetchBytes,
    maxWaitTimeInMs: 200,
    allowAutoTopicCreation: false,
  });
  const open = new Map(wanted.map((range) => [placeOf(range), range]));
  let finish: (error?: unknown) => void = () => undefined;
  let lastProgressMs = performance.now();
  const finished = new Promise<void>((resolve, reject) => {
    finish = (error) => (error === undefined ? resolve() : reject(error));
  });
  finished.catch(() => undefined);
  const watch = setInterval(() => {
    if (performance.now() - lastProgressMs < silenceMs) return;
    const brokers = address.kafkaBrokers ?? '';
    finish(fault('KAFKA_UNAVAILABLE', { brokers, reason: `nothing was read for ${silenceMs} ms` }));
  }, 1_000);
  try {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) finish(payload.error);
    });
    // What is set before the client knows its partitions is forgotten.
    consumer.on(consumer.events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
      for (const [topic, partitions] of Object.entries(memberAssignment)) {
        for (const partition of partitions) {
          const range = open.get(placeOf({ topic, partition }));
          if (range === undefined) consumer.pause([{ topic, partitions: [partition] }]);
          else consumer.seek({ topic, partition, offset: String(range.from) });
        }
      }
    });
    await consumer.connect();
    await consumer.subscribe({ topics: [...new Set(wanted.map(({ topic }) => topic))], fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async ({ batch }) => {
        lastProgressMs = performance.now();
        const { topic, partition } = batch;
        const range = open.get(placeOf({ topic, partition }));
        if (range === undefined) return;
        for (const message of batch.messages) {
          const offset = Number(message.offset);
          if (offset >= range.from && offset < range.end) take(topic, partition, message);
        }
        // The last offset of a batch counts also where it holds no record.
        if (Number(batch.lastOffset()) + 1 < range.end) return;
        open.delete(placeOf(range));
        consumer.pause([{ topic, partitions: [partition] }]);
        if (open.size === 0) finish();
      },
    });
    await finished;
  } catch (error) {
    throw kafkaFault(error, address.kafkaBrokers);
  } finally {
    clearInterval(watch);
    await endsWithin(consumer.disconnect(), 5_000);
    client.fence();
  }
}

function placeOf({ topic, partition }: Pick<Wanted, 'topic' | 'partition'>): string {
  return `${topic}/${partition}`;
}
