import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { createCronRun } from '../../../pipelines/agents/crons/fire-cron.ts';
import { readCron } from '../../../pipelines/agents/crons/write-crons.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** TTLs of threads and store items as set in langgraph.json. */

const agents = forSuite(() => startAgentServer({ project: 'store' }));

const readTtl = async (threadId: string) => {
  const answer = await agents.ask('GET', `/threads/${threadId}?include=ttl`);
  const { ttl } = (await answer.json()) as { ttl?: { strategy: string; ttl_minutes: number } };
  return ttl && { strategy: ttl.strategy, minutes: ttl.ttl_minutes };
};
const defaults = { strategy: 'keep_latest', minutes: 90 };

it('threads get the TTL of langgraph.json, however they are created, unless the request sets another one', async () => {
  const { threads, runs } = agents.client;
  const { thread_id: plain } = await threads.create();
  expect(await readTtl(plain)).toEqual(defaults);
  const { thread_id: other } = await threads.create({ ttl: 30 });
  expect(await readTtl(other)).toEqual({ strategy: 'delete', minutes: 30 });
  expect(await readTtl((await threads.copy(plain)).thread_id)).toEqual(defaults);
  const made = randomUUID();
  await runs.wait(made, 'notes', { input: {}, ifNotExists: 'create' });
  expect(await readTtl(made)).toEqual(defaults);
  const kept = await runs.create(null, 'notes', { input: {}, onCompletion: 'keep' as never });
  expect(await readTtl(kept.thread_id)).toEqual(defaults);
});

it('threads of crons get the TTL of langgraph.json', async () => {
  const { crons } = agents.client;
  const body = { schedule: '0 0 1 1 *', input: {}, onRunCompleted: 'keep' as const };
  const { cron_id: cronId } = (await crons.create('notes', body)) as unknown as { cron_id: string };
  const { database, owner, services } = agents;
  const cron = await readCron(database, owner.id, cronId);
  const runId = await database.transaction((tx) => createCronRun(tx, owner.id, cron, services.agents));
  const [row] = await database.query<{ thread_id: string }>('SELECT thread_id FROM agents.runs WHERE run_id = $1', [
    runId,
  ]);
  expect(await readTtl(row!.thread_id)).toEqual(defaults);
});

it('expired threads and items are deleted at the configured interval', async () => {
  const { threads, runs, store } = agents.client;
  const { thread_id: gone } = await threads.create({ ttl: 30 });
  const { thread_id: pruned } = await threads.create();
  await runs.wait(pruned, 'notes', { input: {} });
  await store.putItem(['notes'], 'gone', { text: 'x' });
  await agents.database.execute('UPDATE agents.threads SET expires_at = now() WHERE thread_id = ANY ($1::uuid[])', [
    [gone, pruned],
  ]);
  await agents.database.execute("UPDATE agents.store_items SET expires_at = now() WHERE key = 'gone'", []);
  const expired = (table: string) => agents.database.query(`SELECT FROM agents.${table} WHERE expires_at <= now()`);
  await expect
    .poll(async () => (await expired('threads')).length + (await expired('store_items')).length, { timeout: 20_000 })
    .toBe(0);
  await expect(threads.get(gone)).rejects.toThrow('404');
  expect(await threads.getHistory(pruned)).toHaveLength(1);
});
