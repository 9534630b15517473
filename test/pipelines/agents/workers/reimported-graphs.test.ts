import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { buildGraphEnvironment } from '../../../../infra/config/graph-environment.ts';
import { openPoolUnderTest, type PoolUnderTest } from '../../../agents/pool-under-test.ts';

/** A worker that was restarted fails to import a graph that earlier processes have imported. */

let folder: string;
/** While this file exists, importing the graph fails, and adds a byte to the file. */
let file: string;
let under: PoolUnderTest;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'runlake-reimported-'));
  file = join(folder, 'fails');
});
afterEach(async () => {
  await under?.close();
  await rm(folder, { recursive: true });
});

const open = async (importRetryMs?: number) => {
  const environment = { ...buildGraphEnvironment(), FAILS_WHILE: file };
  under = await openPoolUnderTest('reimported', { environment, ...(importRetryMs && { importRetryMs }) });
};

test.each([false, true])('a run waits while its graph cannot be imported again (alone: %s)', async (alone) => {
  await open();
  await writeFile(file, '');
  const { outcome } = await under.run('fragile', { input: { ends: true } });
  expect(outcome).toMatchObject({ kind: 'lost' });
  const waiting = await under.start('fragile', { job: { alone } });
  await expect.poll(async () => (await stat(file)).size, { timeout: 20_000 }).toBeGreaterThanOrEqual(2);
  await rm(file);
  expect(await waiting.handle.outcome).toMatchObject({ kind: 'finished' });
  expect(under.pool.loadErrors.size).toBe(0);
});

test('a graph that cannot be imported again in time is unusable, and others are executed', async () => {
  await open(1_000);
  await writeFile(file, '');
  await under.run('fragile', { input: { ends: true } });
  expect(await under.values('sturdy')).toEqual({ said: 'yes' });
  const { outcome } = await under.run('fragile');
  expect(outcome).toMatchObject({ kind: 'failed', error: 'GraphUnusable' });
});
