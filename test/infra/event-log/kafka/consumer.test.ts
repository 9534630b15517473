import { describe, expect, test } from 'vitest';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { json, runEvent } from '../../../pipelines/runs/run-events.ts';
import { until } from '../../until.ts';
import { type KafkaServers, kafkaServers, kafkaUnderTest } from './kafka-under-test.ts';
import { logged, type SinkOnKafka, sinkOnKafka } from './sink-on-kafka.ts';

const servers = kafkaServers();
const runsOfRound = 40;

describe.runIf(servers)('members join and leave the group while events are stored', () => {
  test('no run is lost or duplicated, and every run has its newest value', async () => {
    const stores = await freshStores();
    const kafka = await kafkaUnderTest(servers as KafkaServers, { kafkaPartitions: 4, insertBatchMs: 20 });
    const api = await kafka.open({}, [runEvents]);
    const join = async (): Promise<SinkOnKafka> =>
      sinkOnKafka(
        { log: await kafka.open({}, [runEvents]), clickhouse: stores.clickhouse, database: stores.database },
        {
          // Slow inserts, so that partitions are reassigned during them.
          around: async (_insert, real) => {
            await real();
            await new Promise((resolve) => setTimeout(resolve, 300));
          },
        },
      );
    const runs: RunEvent[] = [];
    let stopped = false;
    const load = (async () => {
      while (!stopped) {
        const fresh = Array.from({ length: runsOfRound }, () => runEvent({ values: { outputs: json('posted') } }));
        for (const value of ['posted', 'first', 'second', 'third']) {
          const events = fresh.map(
            (run): RunEvent =>
              value === 'posted'
                ? run
                : { ...run, kind: 'patch', projectId: nilUuid, values: { outputs: json(value) } },
          );
          await api.publish(
            runEvents,
            events.map((event) => logged(api, event)),
          );
        }
        runs.push(...fresh);
      }
    })();
    const members: SinkOnKafka[] = [];
    const insertingMembers = (count: number) => async () => {
      const before = members.map(({ inserts }) => inserts.length);
      await until(
        `${count} members to insert`,
        () => members.filter(({ inserts }, index) => inserts.length > (before[index] as number) + 2).length >= count,
        60_000,
      );
    };
    try {
      members.push(await join());
      await insertingMembers(1)();
      members.push(await join());
      await insertingMembers(2)();
      members.push(await join());
      await insertingMembers(3)();
      await members.shift()?.stop();
      await insertingMembers(2)();
      await members.shift()?.stop();
      await insertingMembers(1)();
    } finally {
      stopped = true;
      await load;
    }
    const rows = <Row>(sql: string) => stores.clickhouse.query<Row>({ name: 'test', sql });
    const lag = async () => {
      const ends = await kafka.admin.fetchTopicOffsets(kafka.nameOf(runEvents));
      const [found] = await kafka.admin.fetchOffsets({
        groupId: `${kafka.config.kafkaTopicPrefix}sink-run-events`,
        topics: [kafka.nameOf(runEvents)],
      });
      return ends.reduce((sum, { partition, high }) => {
        const position = found?.partitions.find((each) => each.partition === partition)?.offset ?? '0';
        return sum + Number(high) - Math.max(0, Number(position));
      }, 0);
    };
    await until('all events to be stored', async () => (await lag()) === 0, 60_000);
    const newest = await rows<{ outputs: string; runs: number }>(
      'SELECT outputs, count() AS runs FROM runs FINAL GROUP BY outputs',
    );
    expect(newest.map(({ outputs, runs: count }) => [outputs, Number(count)])).toEqual([['"third"', runs.length]]);
    const [facts] = await rows<{ traces: number }>('SELECT uniqExact(tenant_id, trace_id) AS traces FROM traces');
    expect(Number(facts?.traces)).toBe(runs.length);
    await members[0]?.stop();
    await kafka.close();
    await stores.close();
  }, 240_000);
});
