import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isLeaseLost, LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import { beginEarly, checkpointOf, configOf, metadata, put } from './put-checkpoints.ts';
import { openThreads, type Threads } from './threads.ts';

let threads: Threads;
beforeAll(async () => {
  threads = await openThreads();
});
afterAll(() => threads?.close());

const begin = async () => threads.startRun(await threads.newThread());
/** A saver that did not take part in the writes. */
const reader = () => new LeasedSaver(threads.pool);
/** Expects the saver to read what others read, without a query of its own if it knows the checkpoint. */
const expectSameHead = async (run: Awaited<ReturnType<typeof beginEarly>>, isKnown: boolean) => {
  await run.saver.settled();
  const before = run.sent.length;
  expect(await run.saver.getTuple(configOf(run))).toEqual(await reader().getTuple(configOf(run)));
  expect(run.sent.length - before).toBe(isKnown ? 0 : 1);
};

test.each([
  [
    'values of several types',
    { a: 1, text: 'two', bytes: new Uint8Array([1, 2]), none: null, odd: 'nul \u0000' },
    true,
  ],
  ['no values', {}, true],
  ['values larger than the kept maximum', { large: 'x'.repeat(300_000) }, false],
])('reads its own checkpoint: %s', async (_, values, isKnown) => {
  const run = await beginEarly(threads);
  await put(run, checkpointOf(run.saver, values));
  await expectSameHead(run, isKnown);
});

test('knows values put earlier, writes in their order, and empty channels', async () => {
  const run = await beginEarly(threads);
  const first = checkpointOf(run.saver, { a: 1, b: { deep: [2] } });
  const config = await put(run, first);
  await run.saver.putWrites(
    config,
    [
      ['b', 'of b'],
      ['a', 'of a'],
    ],
    'task 2',
  );
  await run.saver.putWrites(config, [['a', 'of the first']], 'task 1');
  await run.saver.putWrites(config, [['a', 'not again']], 'task 1');
  await run.saver.putWrites(config, [['__error__', 'once']], 'task 1');
  await run.saver.putWrites(config, [['__error__', 'twice']], 'task 1');
  await expectSameHead(run, true);
  const version = run.saver.getNextVersion(first.channel_versions.a as number);
  const second = { ...checkpointOf(run.saver, {}), channel_values: { b: { deep: [2] } } };
  second.channel_versions = { ...first.channel_versions, a: version };
  await run.saver.put(config, second, metadata, { a: version });
  await expectSameHead(run, true);
});

test('queries Postgres if another saver put a part of the checkpoint', async () => {
  const earlier = await beginEarly(threads);
  const first = checkpointOf(earlier.saver, { a: 1, b: 2 });
  const config = await put(earlier, first);
  await earlier.saver.settled();
  await threads.database.execute(`UPDATE agents.runs SET status = 'success' WHERE run_id = $1`, [earlier.runId]);
  const run = await beginEarly(threads, { threadId: earlier.threadId });
  const second = checkpointOf(run.saver, { a: 3 });
  second.channel_versions = { ...first.channel_versions, ...second.channel_versions };
  const at = await run.saver.put(config, second, metadata, { a: second.channel_versions.a! });
  await expectSameHead(run, false);
  await run.saver.putWrites(at, [['a', 1]], 'task');
  await expectSameHead(run, false);
  await run.saver.putWrites(config, [['a', 1]], 'task');
  await expectSameHead(run, false);
});

test('does not know a failed write, or a deleted thread', async () => {
  const run = await begin();
  await put(run, checkpointOf(run.saver, { a: 1 }));
  await threads.database.execute('UPDATE agents.runs SET lease_token = $2 WHERE run_id = $1', [
    run.runId,
    randomUUID(),
  ]);
  await expect(put(run, checkpointOf(run.saver, { a: 2 }))).rejects.toSatisfy(isLeaseLost);
  expect(await run.saver.getTuple(configOf(run))).toMatchObject({ checkpoint: { channel_values: { a: 1 } } });
  const other = await begin();
  await put(other, checkpointOf(other.saver, { a: 1 }));
  await other.saver.deleteThread(other.key);
  expect(await other.saver.getTuple(configOf(other))).toBeUndefined();
});
