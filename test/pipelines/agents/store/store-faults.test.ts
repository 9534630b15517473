import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { AgentStore } from '../../../../pipelines/agents/store/agent-store.ts';
import type { StoreConfig } from '../../../../pipelines/agents/store/store-item.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { forSuite } from '../../../for-suite.ts';
import { openThreads } from '../checkpoints/threads.ts';

const plain: StoreConfig = { refreshOnRead: true };
const threads = forSuite(() => openThreads());
let pool: pg.Pool;
beforeAll(async () => {
  pool = new pg.Pool({ ...threads.pool.options, application_name: 'store under test' });
  pool.on('error', () => undefined);
});
afterAll(async () => {
  await pool?.end();
});

test('lost connections to Postgres only delay operations', { timeout: 60_000 }, async () => {
  const store = new AgentStore(pool, await addDeployment(threads.database), plain);
  let isOver = false;
  const work = Array.from({ length: 6 }, async (_, worker) => {
    for (let count = 0; !isOver; count += 1) {
      const key = `${count % 10}`;
      await store.put(['outage', `${worker}`], key, { count });
      expect(await store.get(['outage', `${worker}`], key)).toMatchObject({ value: { count } });
    }
  });
  const terminated = (async () => {
    let count = 0;
    for (let round = 0; round < 10; round += 1) {
      await pause(150);
      const { rowCount } = await threads.pool.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'store under test'",
      );
      count += rowCount ?? 0;
    }
    isOver = true;
    return count;
  })();
  await Promise.all([...work, terminated]);
  expect(await terminated).toBeGreaterThan(0);
});

test('writes of the same items in different orders do not block each other', { timeout: 60_000 }, async () => {
  const deploymentId = await addDeployment(threads.database);
  const [one, other] = [0, 1].map(() => new AgentStore(pool, deploymentId, plain)) as [AgentStore, AgentStore];
  const items = Array.from({ length: 30 }, (_, index) => ({ namespace: ['same'], key: `${index}`, value: { index } }));
  const reversed = [...items].reverse();
  const { query } = pool;
  const codes: unknown[] = [];
  const failed = (error: { code?: string }) => {
    codes.push(error.code);
    throw error;
  };
  vi.spyOn(pool, 'query').mockImplementation((...statement: unknown[]) =>
    Reflect.apply(query, pool, statement).catch(failed),
  );
  for (let round = 0; round < 50; round += 1) await Promise.all([one.batch(items), other.batch(reversed)]);
  vi.restoreAllMocks();
  expect(codes).toEqual([]);
});
