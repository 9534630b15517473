import { v6 as uuidv6 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import { forSuite } from '../../../for-suite.ts';
import { configOf, makeCheckpoint, put } from './put-checkpoints.ts';
import { openThreads } from './threads.ts';

const threads = forSuite(() => openThreads());

const begin = async () => threads.startRun(await threads.newThread());

describe('a state that another process wrote while its clock was ahead', () => {
  async function beginAfter(aheadMs: number) {
    const other = await begin();
    const ahead = { ...makeCheckpoint(other.saver, { a: 1 }), id: uuidv6({ msecs: Date.now() + aheadMs }) };
    await put(other, ahead);
    await threads.endRun(other);
    return { id: ahead.id, run: await threads.startRun(other.threadId) };
  }

  test('is followed by states with higher ids', async () => {
    for (const aheadMs of [0, 1, 300]) {
      const { id, run } = await beginAfter(aheadMs);
      expect((await run.saver.getTuple(configOf(run)))?.checkpoint.id).toBe(id);
      const next = makeCheckpoint(run.saver, { a: 2 });
      await put(run, next);
      expect((await run.saver.getTuple(configOf(run)))?.checkpoint.id).toBe(next.id);
    }
  });

  test('is followed by states with higher ids if a fork follows an older state', async () => {
    const other = await begin();
    const older = makeCheckpoint(other.saver, { a: 1 });
    await put(other, older);
    const ahead = { ...makeCheckpoint(other.saver, { a: 2 }), id: uuidv6({ msecs: Date.now() + 300 }) };
    await put(other, ahead);
    await threads.endRun(other);
    const run = await threads.startRun(other.threadId);
    expect((await run.saver.getTuple(configOf(run, older.id)))?.checkpoint.id).toBe(older.id);
    const next = makeCheckpoint(run.saver, { a: 3 });
    await put(run, next);
    expect((await run.saver.getTuple(configOf(run)))?.checkpoint.id).toBe(next.id);
  });

  test('is not followed by older states if the clock is set back during the run', async () => {
    const run = await begin();
    const newest = makeCheckpoint(run.saver, { a: 1 });
    await put(run, newest);
    const older = { ...makeCheckpoint(run.saver, { a: 2 }), id: uuidv6({ msecs: Date.now() - 5_000 }) };
    await expect(put(run, older)).rejects.toMatchObject({ code: 'CLOCK_BEHIND' });
    expect((await run.saver.getTuple(configOf(run)))?.checkpoint.id).toBe(newest.id);
  });

  test('is refused if the clock was far ahead, and stays readable', async () => {
    const { id, run } = await beginAfter(60_000);
    const refused = { code: 'CLOCK_BEHIND', message: expect.stringContaining(run.threadId) };
    await expect(run.saver.getTuple(configOf(run))).rejects.toMatchObject(refused);
    expect(await new LeasedSaver(threads.pool).getTuple(configOf(run))).toMatchObject({ checkpoint: { id } });
  });
});
