import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { feedbackEvents, runEvents, type Topic } from '../../../schemas/topics.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { limits, listRows, message, openForTest, storeRemaining } from './in-process-under-test.ts';

test('the table is empty when all events are stored', async () => {
  const under = await openForTest();
  const { promise: held, resolve: release } = deferred();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: () => held });
  await under.log.publish(runEvents, [message('one')]);
  expect(await listRows(under.clickhouse)).toEqual([runEvents.name]);
  release();
  await until('the segment to be dropped', async () => (await listRows(under.clickhouse)).length === 0);
});

test('while the events of a topic are rejected, the table does not keep those of other topics', async () => {
  const under = await openForTest();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: async () => {} });
  const handle = () => Promise.reject(new Error('not now'));
  await under.log.subscribe({ topic: feedbackEvents, group: 'b', limits, handle });
  const publish = (topic: Topic) => under.log.publish(topic, [message('one')]);
  await Promise.all([runEvents, feedbackEvents].map(publish));
  const isDropped = async () => !(await listRows(under.clickhouse)).includes(runEvents.name);
  await until('the segment of the other topic to be dropped', isDropped);
  expect(await listRows(under.clickhouse)).toEqual([feedbackEvents.name]);
});

test('events of a refused request that ClickHouse stores later are dropped', async () => {
  const dropped = deferred();
  let hasFailed = false;
  let insertLate = async () => {};
  const under = await openForTest({
    override: ({ insertBody, command }) => ({
      insertBody: async (insert) => {
        if (hasFailed) return insertBody(insert);
        hasFailed = true;
        insertLate = () => insertBody(insert);
        throw new Error('the client does not wait any longer');
      },
      command: async (statement) => {
        await command(statement);
        dropped.resolve();
      },
    }),
  });
  await expect(under.log.publish(runEvents, [message('refused')])).rejects.toMatchObject({ status: 503 });
  await dropped.promise;
  await insertLate();
  expect(await listRows(under.clickhouse)).toHaveLength(1);
  await until('the late events to be dropped', async () => (await listRows(under.clickhouse)).length === 0);
});

test('events of a process that was killed, which ClickHouse stores after the next one has started, are dropped', async () => {
  const under = await openForTest();
  await under.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO event_log (segment, topic, log_partition, log_offset) VALUES (7, '${runEvents.name}', 0, 7)`,
  });
  await until('the late events to be dropped', async () => (await listRows(under.clickhouse)).length === 0);
});

test('events that cannot be written keep no others in the table', async () => {
  const under = await openForTest();
  const headers = {
    toJSON() {
      throw new Error('cannot be written');
    },
  };
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: async () => {} });
  const refused = under.log.publish(runEvents, [{ ...message('bad'), headers: headers as never }]);
  await expect(refused).rejects.toMatchObject({ status: 503 });
  await under.log.publish(runEvents, [message('good')]);
  await until('the segment to be dropped', async () => !(await listRows(under.clickhouse)).includes(runEvents.name));
});

test('a replicated table forgets dropped segments some minutes later, and the log survives that it cannot', async () => {
  const commands: string[] = [];
  // The server has no Keeper, so it refuses to forget.
  const under = await openForTest({
    override: ({ command }) => ({
      layout: async () => ({ kind: 'replicated', replicas: 1, isShared: false }),
      command: async (statement) => {
        commands.push(statement.name);
        await command(statement);
      },
    }),
  });
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: async () => {} });
  await under.log.publish(runEvents, [message('one')]);
  await until('the segment to be dropped', () => commands.length === 1);
  const now = Date.now();
  vi.spyOn(Date, 'now').mockReturnValue(now + 900_000);
  onTestFinished(() => void vi.restoreAllMocks());
  await until('the segment to be forgotten', () => commands.length === 2);
  await under.log.publish(runEvents, [message('two')]);
  await until('the next segment to be dropped', () => commands.length === 3);
  expect(commands).toEqual(['drop-log-segment', 'forget-log-segment', 'drop-log-segment']);
});

test('the event loop runs while a request with many events is encoded', async () => {
  let turns = 0;
  let turnsBeforeInsert = 0;
  const under = await openForTest({
    maxPendingBytes: 2 ** 27,
    override: ({ insertBody }) => ({
      insertBody: async (insert) => {
        turnsBeforeInsert = turns;
        await insertBody(insert);
      },
    }),
  });
  const messages = Array.from({ length: 100_000 }, (_, index) => ({ ...message('event'), key: `key ${index}` }));
  let isPublished = false;
  const published = under.log.publish(runEvents, messages).then(() => {
    isPublished = true;
  });
  const countTurns = async () => {
    for (turns = 0; !isPublished; turns++) await nextTurn();
  };
  await Promise.all([published, countTurns()]);
  expect(turnsBeforeInsert).toBeGreaterThan(5);
});

test('a segment with more bytes than a string can have is delivered after a restart', async () => {
  const under = await openForTest({ maxPendingBytes: 2 ** 30 });
  // Of a later process than the first, which would drop it.
  const segment = 8_000_000_000_000_000;
  await under.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO event_log SELECT ${segment}, '${runEvents.name}', '', 0, number, 'key', '{"some": "header"}',
      repeat(repeat(char(0, 255), 1000), 12500) FROM numbers(17) SETTINGS max_block_size = 1`,
  });
  const stored = await storeRemaining(await under.reopened());
  const expected = Array.from({ length: 17 }, (_, offset) => ({ offset, key: 'key', headers: { some: 'header' } }));
  expect(stored.map(({ offset, key, headers }) => ({ offset, key, headers }))).toEqual(expected);
  const bytes = Buffer.alloc(25_000_000, Buffer.from([0, 255]));
  expect(stored.every(({ value }) => value.equals(bytes))).toBe(true);
});

test('the timeout of an insert grows with its size', async () => {
  const timeouts: (number | undefined)[] = [];
  const under = await openForTest({
    maxPendingBytes: 2 ** 27,
    override: ({ insertBody }) => ({
      insertBody: async (insert) => {
        timeouts.push(insert.timeoutMs);
        await insertBody(insert);
      },
    }),
  });
  await under.log.publish(runEvents, [message('small')]);
  const large = message('x'.repeat(9 * 2 ** 20));
  await under.log.publish(runEvents, [large, large]);
  expect(timeouts).toEqual([10_000, 20_000]);
});
