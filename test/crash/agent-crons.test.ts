/** Crons over the turns of real minutes, while the agent servers that fire them are killed and started again. */
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
/** Time to make the crons in. */
const headStartMs = 10_000;
/** Of those on threads, and of those without. */
const crons = 6;

describe.runIf(stackPart('kafka') && stackPart('registry'))('crons', () => {
  let roles: AgentRoles;
  beforeAll(async () => {
    roles = await AgentRoles.open(await sharedServers());
  });
  afterAll(() => roles?.close());

  const ask = (sql: string) => askPostgres(roles.databaseUrl, sql);
  const passed = (timeMs: number) => until('the time to come', () => Date.now() >= timeMs, minuteMs + headStartMs);
  const iso = (timeMs: number) => new Date(timeMs).toISOString();

  test('those who fire crons are killed in the middle of it, and while a minute turns: each time makes one run of each', async () => {
    if (minuteMs - (Date.now() % minuteMs) < headStartMs) await passed(Math.ceil(Date.now() / minuteMs) * minuteMs);
    const firstMs = Math.ceil(Date.now() / minuteMs) * minuteMs;
    const secondMs = firstMs + minuteMs;
    const [client] = roles.clients as [Client];
    const cron = { schedule: '* * * * *', input: { n: 1, pauseMs: 0 }, endTime: iso(secondMs) };
    const made: string[] = [];
    const threads: string[] = [];
    for (let count = 0; count < crons; count += 1) {
      const { thread_id: threadId } = await client.threads.create();
      threads.push(threadId);
      made.push((await client.crons.createForThread(threadId, 'burst', cron)).cron_id);
      made.push((await client.crons.create('burst', { ...cron, onRunCompleted: 'keep' })).cron_id);
    }
    const [one, two] = [
      await HeldRow.of(roles.databaseUrl, threads[0] as string),
      await HeldRow.of(roles.databaseUrl, threads[1] as string),
    ];

    // Each of the two stops in the middle of a cron. They die one after the other, so that there is always somebody.
    await Promise.all([one.untilWantedBy('crons'), two.untilWantedBy('crons')]);
    expect(Date.now()).toBeGreaterThanOrEqual(firstMs);
    const [a, b] = roles.agents as [AgentServer, AgentServer];
    for (const server of [a, b]) {
      await roles.killAgents(server);
      await roles.startAgents();
    }
    await Promise.all([one.release(), two.release()]);
    const firings = (timeMs: number) =>
      ask(`SELECT count(*)::int FROM agents.cron_firings WHERE due_at = '${iso(timeMs)}'`);
    const allFired = (timeMs: number) => async () => (await firings(timeMs))[0] === made.length;
    await until('the first time of each', allFired(firstMs), deadlineMs);
    expect(Date.now(), 'too slow for this test').toBeLessThan(secondMs);

    // Nobody is there when the minute turns. Of those who come afterwards one dies in the middle of what it makes up for.
    await passed(secondMs - 2_000);
    const three = await HeldRow.of(roles.databaseUrl, threads[2] as string);
    await roles.killAgents(...roles.agents);
    await passed(secondMs);
    expect(await firings(secondMs)).toEqual([0]);
    await roles.startAgents();
    await three.untilWantedBy('crons');
    await roles.killAgents(...roles.agents);
    await Promise.all([roles.startAgents(), roles.startAgents()]);
    await three.release();
    await until('the second time of each', allFired(secondMs), deadlineMs);

    const [back] = roles.clients as [Client];
    const ended = async () =>
      (await ask(`SELECT count(*)::int FROM agents.runs WHERE status IN ('pending', 'running')`))[0];
    await expect.poll(ended, { timeout: deadlineMs }).toBe(0);
    for (const threadId of threads) {
      expect((await back.runs.list(threadId)).map(({ status }) => status)).toEqual(['success', 'success']);
    }
    expect((await back.crons.search({ limit: 100 })).map(({ next_run_date: next }) => next)).toEqual(
      made.map(() => null),
    );
    for (const cronId of made) {
      const runs = await ask(
        `SELECT run_id::text FROM agents.runs WHERE metadata ->> 'cron_id' = '${cronId}' AND status = 'success'`,
      );
      const fired = await ask(`SELECT run_id::text FROM agents.cron_firings WHERE cron_id = '${cronId}'`);
      expect(new Set(runs).size).toBe(2);
      expect(runs.sort()).toEqual(fired.sort());
      roles.expectTraces(...(runs as string[]));
    }
    await roles.expectCounted();
  });
});
