/** Partitions are added to the topic of run events while everything runs. */
import { Kafka, logLevel } from 'kafkajs';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { until } from '../infra/until.ts';
import { load } from './client.ts';
import { Ledger } from './ledger.ts';
import { openOnStack } from './on-stack.ts';
import { deadlineMs } from './pipeline.ts';

vi.setConfig({ testTimeout: 400_000 });

describe.runIf(stackPart('kafka') && stackPart('registry'))('partitions', () => {
  test('are added under load: no run is lost, duplicated or misplaced, also with producers that use the old number', async () => {
    const { pipeline, close } = await openOnStack({ RUNLAKE_KAFKA_PARTITIONS: '2' });
    const kafka = new Kafka({ brokers: [pipeline.servers.kafkaBrokers], clientId: 'test', logLevel: logLevel.NOTHING });
    const admin = kafka.admin();
    onTestFinished(async () => {
      await admin.disconnect();
      await close();
    });
    await admin.connect();
    const topic = `${pipeline.topicPrefix}run-events`;
    const ledger = new Ledger();
    const loading = load(pipeline, ledger, { senders: 3, batch: 10, pauseMs: 50 });
    const untilMoreAccepted = async (runs: number) => {
      const enough = ledger.acceptedCount + runs;
      await until('runs to be accepted', () => ledger.acceptedCount >= enough, deadlineMs);
    };
    await untilMoreAccepted(100);
    await admin.createPartitions({ topicPartitions: [{ topic, count: 6 }] });
    // This API process still hashes over two partitions; the next one hashes over six.
    await untilMoreAccepted(100);
    expect(await pipeline.process('api').end()).toBe(0);
    await pipeline.start('api');
    await untilMoreAccepted(200);
    await loading.stop();
    expect(await ledger.check(pipeline)).toBe(ledger.acceptedCount);
    const ends = await admin.fetchTopicOffsets(topic);
    expect(ends.filter(({ partition, high }) => partition >= 2 && Number(high) > 0).length).toBeGreaterThan(0);
  });
});
