import { setTimeout as pause } from 'node:timers/promises';
import { Kafka, logLevel } from 'kafkajs';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { type Topic, topics } from '../../schemas/topics.ts';
import { until } from '../infra/until.ts';

/** A killed sink keeps its partitions until its session times out. */
const deadlineMs = 90_000;
const pollMs = 20;

/** Delays reads until the sinks have stored all earlier writes, if Kafka is between the API and the sinks. */
export interface Settling {
  /** Must be called before each request is forwarded. */
  before(method: string, path: string): Promise<void>;
  /** Must be called after the response to each request. */
  after(method: string, path: string): void;
  close(): Promise<void>;
}

/**
 * Makes reads wait: if anything was sent since the sinks last caught up, a read waits until they have committed
 * everything in the topics. So does a change of feedback. After a deadline it continues, and the test reports what is
 * missing. Requests about the server itself never wait.
 */
export function openSettling(environment: Readonly<Record<string, string>>): Settling {
  const { RUNLAKE_KAFKA_BROKERS: brokers, RUNLAKE_KAFKA_TOPIC_PREFIX: prefix = '' } = environment;
  if (brokers === undefined) return { before: async () => {}, after: () => {}, close: async () => {} };
  const admin = new Kafka({ brokers: [brokers], clientId: 'test', logLevel: logLevel.NOTHING }).admin();
  const connected = admin.connect();
  const findOffset = (offsets: { partition: number; offset: string }[], partition: number) =>
    BigInt(offsets.find((one) => one.partition === partition)?.offset ?? -1);

  const isSettled = async (): Promise<boolean> => {
    await connected;
    for (const { name } of topics) {
      const ends = await admin.fetchTopicOffsets(prefix + name);
      const groups = await admin.fetchOffsets({ groupId: `${prefix}sink-${name}`, topics: [prefix + name] });
      const committed = groups.flatMap(({ partitions }) => partitions);
      const isBehind = ({ partition, high }: { partition: number; high: string }) =>
        BigInt(high) > 0n && findOffset(committed, partition) < BigInt(high);
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
  // Changes of feedback read what they change, and refuse requests while much waits to be stored.
  const needsStored = (method: string, path: string) =>
    isRead(method, path) || (/^(PATCH|DELETE)$/.test(method) && path.includes('/feedback/'));

  let isDirty = false;
  /** Concurrent reads share one wait. */
  let settled = Promise.resolve();
  return {
    async before(method, path) {
      if (!isRead(method, path)) isDirty = true;
      if (!needsStored(method, path) || /^\/(ok|ready|metrics|docs|openapi|info)/.test(path)) return;
      if (isDirty) {
        isDirty = false;
        settled = untilSettled();
      }
      await settled;
    },
    // Only now are all events of the request in the topics; a concurrent read may not have waited for them.
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

/** Waits until the consumers of the log have stored the events of a topic that were published. */
export async function untilStored(log: EventLog, topic: Topic): Promise<void> {
  await until('the events to be stored', async () => log.isStored(topic, await log.position(topic)), deadlineMs);
}

/** Waits until the consumers of an in-process log have stored everything that was published. */
export async function settleLog(log: EventLog): Promise<void> {
  for (const topic of topics) await untilStored(log, topic);
}
