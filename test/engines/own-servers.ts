import { Redis } from 'ioredis';
import { Kafka, logLevel } from 'kafkajs';
import { testSettings } from '../test-settings.ts';
import type { EngineAddresses } from './serve-addresses.ts';

/** Number of databases of the stack's Redis; the first one contains the counter that assigns all others. */
const redisDatabases = 4_096;

/** Assigns an empty Redis database to the caller. */
export async function allocateRedisDatabase(
  address: string,
): Promise<{ readonly url: string; clear(): Promise<void> }> {
  const number = await withRedis(address, async (redis) => 1 + ((await redis.incr('next')) % (redisDatabases - 1)));
  const url = new URL(address);
  url.pathname = `/${number}`;
  const clear = () => withRedis(url.href, async (redis) => void (await redis.flushdb()));
  await clear();
  return { url: url.href, clear };
}

async function withRedis<T>(address: string, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(address, { lazyConnect: true, maxRetriesPerRequest: 1 });
  redis.on('error', () => {});
  await redis.connect();
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}

/** Returns the variables that give the caller its own topics and groups on the stack's Kafka; `clear` deletes them. */
export function allocateKafkaTopics(
  { kafkaBrokers, schemaRegistryUrl }: EngineAddresses,
  name: string,
): { readonly environment: Record<string, string>; clear(): Promise<void> } {
  if (kafkaBrokers === undefined || schemaRegistryUrl === undefined) return { environment: {}, clear: async () => {} };
  const prefix = `${name}.`;
  return {
    environment: {
      RUNLAKE_KAFKA_BROKERS: kafkaBrokers,
      RUNLAKE_SCHEMA_REGISTRY_URL: schemaRegistryUrl,
      RUNLAKE_KAFKA_TOPIC_PREFIX: prefix,
      RUNLAKE_KAFKA_PARTITIONS: '2',
      ...testSettings({
        // After a kill, the group waits this long for the dead member.
        kafkaSessionTimeoutMs: 6_000,
        // Tests usually read their events immediately, and would wait for the batch interval without this.
        insertBatchMs: 50,
      }),
    },
    clear: () => deleteTopics(kafkaBrokers, prefix),
  };
}

async function deleteTopics(brokers: string, prefix: string): Promise<void> {
  const admin = new Kafka({ brokers: [brokers], clientId: 'test', logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  try {
    const topics = (await admin.listTopics()).filter((topic) => topic.startsWith(prefix));
    if (topics.length > 0) await admin.deleteTopics({ topics });
  } finally {
    await admin.disconnect();
  }
}
