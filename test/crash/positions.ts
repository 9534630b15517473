import { Kafka, logLevel } from 'kafkajs';
import { topics } from '../../schemas/topics.ts';

export interface CommittedOffsets {
  /** Returns whether the committed offsets of the sinks equal the log-end offsets. */
  isAtEnd(): Promise<boolean>;
  close(): Promise<void>;
}

/** Queries Kafka directly, without a proxy. `close` deletes the topics if Kafka is up. */
export function watchOffsets(brokers: string, prefix: string): CommittedOffsets {
  const kafka = new Kafka({ brokers: [brokers], clientId: 'test', logLevel: logLevel.NOTHING, retry: { retries: 1 } });
  const admin = kafka.admin();
  let connected: Promise<void> | undefined;
  const connect = () => {
    connected ??= admin.connect().catch((error: unknown) => {
      connected = undefined;
      throw error;
    });
    return connected;
  };
  return {
    async isAtEnd() {
      await connect();
      for (const { name } of topics) {
        const ends = await admin.fetchTopicOffsets(prefix + name);
        const groups = await admin.fetchOffsets({ groupId: `${prefix}sink-${name}`, topics: [prefix + name] });
        const committed = new Map(groups.flatMap((group) => group.partitions.map((at) => [at.partition, at.offset])));
        const isBehind = ({ partition, high }: { partition: number; high: string }) =>
          BigInt(high) > 0n && BigInt(committed.get(partition) ?? -1) < BigInt(high);
        if (ends.some(isBehind)) return false;
      }
      return true;
    },
    async close() {
      const deleting = connect().then(async () => {
        const own = (await admin.listTopics()).filter((topic) => topic.startsWith(prefix));
        if (own.length > 0) await admin.deleteTopics({ topics: own });
      });
      await deleting.catch(() => undefined);
      await admin.disconnect().catch(() => undefined);
    },
  };
}
