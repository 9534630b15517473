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
  close(): Promise<void>;
}

/**
 * A request that reads waits until the sinks have committed all that is in the topics, if anything was sent since it last was
 * so. After a deadline it goes on, and the test says what it misses. Requests about the server itself never wait.
 */
export function openSettling(environment: Readonly<Record<string, string>>): Settling {
  const { RUNLAKE_KAFKA_BROKERS: brokers, RUNLAKE_KAFKA_TOPIC_PREFIX: prefix = '' } = environment;
  if (brokers === undefined) return { before: async () => {}, close: async () => {} };
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

  let isDirty = false;
  return {
    async before(method, path) {
      const reads = method === 'GET' || path.includes('/query');
      if (!reads) isDirty = true;
      if (!reads || !isDirty || /^\/(ok|ready|metrics|docs|openapi|info)/.test(path)) return;
      isDirty = false;
      for (const endMs = Date.now() + deadlineMs; Date.now() < endMs; await pause(pollMs)) {
        if (await isSettled().catch(() => false)) return;
      }
    },
    async close() {
      await connected.then(
        () => admin.disconnect(),
        () => undefined,
      );
    },
  };
}
