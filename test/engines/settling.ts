import { setTimeout as pause } from 'node:timers/promises';
import { Kafka, logLevel } from 'kafkajs';
import { topics } from '../../schemas/topics.ts';

/** A sink that was killed keeps its partitions until its session ends. */
const deadlineMs = 90_000;
const pollMs = 20;

/** Lets reads wait for what was written before them, where Kafka lies in between. */
export interface Settling {
  /** To be asked before each request is let through. */
  before(method: string, path: string): Promise<void>;
  /** To be told of each request that was answered. */
  after(method: string, path: string): void;
  close(): Promise<void>;
}

/**
 * A request that reads waits until the sinks have committed all that is in the topics, if anything was sent since it last was
 * so. After a deadline it goes on, and the test says what it misses. Requests about the server itself never wait.
 */
export function openSettling(environment: Readonly<Record<string, string>>): Settling {
  const { RUNLAKE_KAFKA_BROKERS: brokers, RUNLAKE_KAFKA_TOPIC_PREFIX: prefix = '' } = environment;
  if (brokers === undefined) return { before: async () => {}, after: () => {}, close: async () => {} };
  const admin = new Kafka({ brokers: [brokers], clientId: 'test', logLevel: logLevel.NOTHING }).admin();
  const connected = admin.connect();
  const offsetOf = (offsets: { partition: number; offset: string }[], partition: number) =>
    BigInt(offsets.find((one) => one.partition === partition)?.offset ?? -1);

  const isSettled = async (): Promise<boolean> => {
    await connected;
    for (const { name, table } of topics) {
      const ends = await admin.fetchTopicOffsets(prefix + name);
      const groups = await admin.fetchOffsets({ groupId: `${prefix}sink-${table}`, topics: [prefix + name] });
      const committed = groups.flatMap(({ partitions }) => partitions);
      const isBehind = ({ partition, high }: { partition: number; high: string }) =>
        BigInt(high) > 0n && offsetOf(committed, partition) < BigInt(high);
      if (ends.some(isBehind)) return false;
    }
    return true;
  };

  const untilSettled = async () => {
    for (const endMs = Date.now() + deadlineMs; Date.now() < endMs; await pause(pollMs)) {
      if (await isSettled().catch(() => false)) return;
    }
  };
  const isRead = (method: string, path: string) => method === 'GET' || path.includes('/query');

  let isDirty = false;
  /** Reads that come at the same moment wait for the same. */
  let settled = Promise.resolve();
  return {
    async before(method, path) {
      if (!isRead(method, path)) isDirty = true;
      if (!isRead(method, path) || /^\/(ok|ready|metrics|docs|openapi|info)/.test(path)) return;
      if (isDirty) {
        isDirty = false;
        settled = untilSettled();
      }
      await settled;
    },
    // Only now is all of it in the topics: a read that came meanwhile may not have waited for it.
    after(method, path) {
      if (!isRead(method, path)) isDirty = true;
    },
    async close() {
      await connected.then(
        () => admin.disconnect(),
        () => undefined,
      );
    },
  };
}
