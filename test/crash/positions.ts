import { Kafka, logLevel } from 'kafkajs';
import { topics } from '../../schemas/topics.ts';

export interface Positions {
  /** Whether the sinks have committed everything that is in the topics. */
  atEnd(): Promise<boolean>;
  close(): Promise<void>;
}

/** Asks a Kafka directly, past all proxies. Closing deletes the topics, where Kafka is there. */
export function watchPositions(brokers: string, prefix: string): Positions {
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
    async atEnd() {
      await connect();
      for (const { name, table } of topics) {
        const ends = await admin.fetchTopicOffsets(prefix + name);
        const groups = await admin.fetchOffsets({ groupId: `${prefix}sink-${table}`, topics: [prefix + name] });
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
