import { SchemaRegistry } from '@kafkajs/confluent-schema-registry';
import { Kafka, logLevel, type Producer } from 'kafkajs';
import { runEvents } from '../../schemas/topics.ts';
import type { BenchStack } from '../stack.ts';
import type { ParsedRun } from './records.ts';

/** The bare Kafka client on the product's topic. */
export interface BareTopic {
  readonly schemaId: number;
  /** Sends records in one `send`, acknowledged by all in-sync replicas. */
  produce(runs: readonly ParsedRun[], records: readonly Buffer[], tenantId: string): Promise<void>;
  /** Consumes `count` records with a new group. @returns milliseconds from the first batch to the last. */
  consume(count: number): Promise<number>;
  close(): Promise<void>;
}

/** Requires that a role of the product has created topic and schema. */
export async function openBareTopic({ brokers, registryUrl }: BenchStack): Promise<BareTopic> {
  const kafka = new Kafka({ brokers: [brokers], clientId: 'bench', logLevel: logLevel.NOTHING });
  const registry = new SchemaRegistry({ host: registryUrl });
  const schemaId = await registry.getLatestSchemaId(`${runEvents.name}-value`);
  const producer: Producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 });
  await producer.connect();
  let groups = 0;
  return {
    schemaId,
    async produce(runs, records, tenantId) {
      await producer.send({
        topic: runEvents.name,
        acks: -1,
        messages: records.map((value, index) => ({ key: `${tenantId}${runs[index]?.traceId}`, value })),
      });
    },
    async consume(count) {
      const consumer = kafka.consumer({
        groupId: `bench-${process.pid}-${groups++}`,
        maxBytesPerPartition: 8 * 1024 * 1024,
      });
      await consumer.connect();
      await consumer.subscribe({ topics: [runEvents.name], fromBeginning: true });
      let began = 0;
      let seen = 0;
      const ended = await new Promise<number>((resolve, reject) => {
        consumer
          .run({
            autoCommit: false,
            eachBatch: async ({ batch }) => {
              if (began === 0) began = performance.now();
              seen += batch.messages.length;
              if (seen >= count) resolve(performance.now());
            },
          })
          .catch(reject);
      });
      await consumer.disconnect();
      return ended - began;
    },
    close: () => producer.disconnect(),
  };
}
