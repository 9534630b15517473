/** Crons across real minute boundaries, while the agent servers that fire them are killed and restarted. */
import type { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { askPostgres } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { AgentRoles, type AgentServer } from './agent-roles.ts';
import { HeldRow } from './held-row.ts';
import { deadlineMs } from './pipeline.ts';
import { sharedServers } from './servers-of-roles.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const minuteMs = 60_000;
/** Time reserved to create the crons before the next minute. */
const setupMs = 10_000;
/** Number of crons on threads, and of stateless crons. */
const crons = 6;

describe.runIf(stackPart('kafka') && stackPart('registry'))('crons', () => {
  let roles: AgentRoles;
  beforeAll(async () => {
    roles = await AgentRoles.open(await sharedServers());
  });
  afterAll(() => roles?.close());

  const queryPostgres = (sql: string) => askPostgres(roles.databaseUrl, sql);
  const waitUntil = (timeMs: number) =>
    until('the clock to reach the time', () => Date.now() >= timeMs, minuteMs + setupMs);
  const iso = (timeMs: number) => new Date(timeMs).toISOString();

  test('kill -9 of agent servers while they fire crons and across a minute boundary: each time creates one run per cron', async () => {
    if (minuteMs - (Date.now() % minuteMs) < setupMs) await waitUntil(Math.ceil(Date.now() / minuteMs) * minuteMs);
    const firstMs = Math.ceil(Date.now() / minuteMs) * minuteMs;
    const secondMs = firstMs + minuteMs;
    const [client] = roles.clients as [Client];
    const cron = { schedule: '* * * * *', input: { n: 1, pauseMs: 0 }, endTime: iso(secondMs) };
    const cronIds: string[] = [];
    const threads: string[] = [];
    for (let count = 0; count < crons; count += 1) {
      const { thread_id: threadId } = await client.threads.create();
      threads.push(threadId);
      cronIds.push((await client.crons.createForThread(threadId, 'burst', cron)).cron_id);
      cronIds.push((await client.crons.create('burst', { ...cron, onRunCompleted: 'keep' })).cron_id);
    }
    const [firstHeld, secondHeld] = [
      await HeldRow.of(roles.databaseUrl, threads[0] as string),
      await HeldRow.of(roles.databaseUrl, threads[1] as string),
    ];

    // Each of the two processes blocks in the middle of a cron. They are killed one at a time, so that one always runs.
    await Promise.all([firstHeld.untilWantedBy('crons'), secondHeld.untilWantedBy('crons')]);
    expect(Date.now()).toBeGreaterThanOrEqual(firstMs);
    const [a, b] = roles.agents as [AgentServer, AgentServer];
    for (const server of [a, b]) {
      await roles.killAgents(server);
      await roles.startAgents();
    }
    await Promise.all([firstHeld.release(), secondHeld.release()]);
    const firings = (timeMs: number) =>
      queryPostgres(`SELECT count(*)::int FROM agents.cron_firings WHERE due_at = '${iso(timeMs)}'`);
    const allFired = (timeMs: number) => async () => (await firings(timeMs))[0] === cronIds.length;
    await until('each cron to fire at its first time', allFired(firstMs), deadlineMs);
    expect(Date.now(), 'the machine is too slow for this test').toBeLessThan(secondMs);

    // No process runs at the minute boundary. The one started afterwards is killed while it fires the missed time.
    await waitUntil(secondMs - 2_000);
    const thirdHeld = await HeldRow.of(roles.databaseUrl, threads[2] as string);
    await roles.killAgents(...roles.agents);
    await waitUntil(secondMs);
    expect(await firings(secondMs)).toEqual([0]);
    await roles.startAgents();
    await thirdHeld.untilWantedBy('crons');
    await roles.killAgents(...roles.agents);
    await Promise.all([roles.startAgents(), roles.startAgents()]);
    await thirdHeld.release();
    await until('each cron to fire at its second time', allFired(secondMs), deadlineMs);

    const [restarted] = roles.clients as [Client];
    const ended = async () =>
      (await queryPostgres(`SELECT count(*)::int FROM agents.runs WHERE status IN ('pending', 'running')`))[0];
    await expect.poll(ended, { timeout: deadlineMs }).toBe(0);
    for (const threadId of threads) {
      expect((await restarted.runs.list(threadId)).map(({ status }) => status)).toEqual(['success', 'success']);
    }
    expect((await restarted.crons.search({ limit: 100 })).map(({ next_run_date: next }) => next)).toEqual(
      cronIds.map(() => null),
    );
    for (const cronId of cronIds) {
      const runs = await queryPostgres(
        `SELECT run_id::text FROM agents.runs WHERE metadata ->> 'cron_id' = '${cronId}' AND status = 'success'`,
      );
      const fired = await queryPostgres(`SELECT run_id::text FROM agents.cron_firings WHERE cron_id = '${cronId}'`);
      expect(new Set(runs).size).toBe(2);
      expect(runs.sort()).toEqual(fired.sort());
      roles.expectTraces(...(runs as string[]));
    }
    await roles.expectCounted();
  });
});
