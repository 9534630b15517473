/**
 * Crons that come due while the agent servers that fire them are killed and restarted. The test does not wait for the
 * schedule, whose next fire time is half an hour away; it sets the next fire time of each cron to a past one.
 */
import type { Client } from '@langchain/langgraph-sdk';
import { describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { forSuite } from '../for-suite.ts';
import { askPostgres } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { AgentRoles, type AgentServer } from './agent-roles.ts';
import { LockedThreadRow as LockedRow } from './held-row.ts';
import { deadlineMs } from './pipeline.ts';
import { sharedServers } from './servers-of-roles.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const hourMs = 3_600_000;
/** Number of crons on threads, and of stateless crons. */
const crons = 6;

describe.runIf(stackPart('kafka') && stackPart('registry'))('crons', () => {
  const roles = forSuite(async () => AgentRoles.open(await sharedServers()));

  const queryPostgres = (sql: string) => askPostgres(roles.databaseUrl, sql);
  const iso = (timeMs: number) => new Date(timeMs).toISOString();

  test('kill -9 of agent servers while they fire crons, and a time at which none runs: each time creates one run per cron', async () => {
    const minuteMs = 60_000;
    const secondMs = Math.floor(Date.now() / minuteMs) * minuteMs - hourMs / 2;
    const firstMs = secondMs - hourMs;
    const minute = new Date(secondMs).getUTCMinutes();
    /** Makes every cron due at this time of its schedule, and at no later time. */
    const makeDue = (timeMs: number) =>
      queryPostgres(
        `WITH due AS (UPDATE agents.crons SET next_run_date = '${iso(timeMs)}', end_time = '${iso(timeMs)}'
           RETURNING deployment_id)
         SELECT pg_notify('agent_crons', deployment_id) FROM (SELECT DISTINCT deployment_id::text FROM due) AS deployments`,
      );
    const [client] = roles.clients as [Client];
    const cron = { schedule: `${minute} * * * *`, input: { n: 1, pauseMs: 0 } };
    const cronIds: string[] = [];
    const threads: string[] = [];
    for (let count = 0; count < crons; count += 1) {
      const { thread_id: threadId } = await client.threads.create();
      threads.push(threadId);
      cronIds.push((await client.crons.createForThread(threadId, 'burst', cron)).cron_id);
      cronIds.push((await client.crons.create('burst', { ...cron, onRunCompleted: 'keep' })).cron_id);
    }
    const [firstHeld, secondHeld] = [
      await LockedRow.of(roles.databaseUrl, threads[0] as string),
      await LockedRow.of(roles.databaseUrl, threads[1] as string),
    ];

    await makeDue(firstMs);
    // Each of the two processes blocks in the middle of a cron. They are killed one at a time, so that one always runs.
    await Promise.all([firstHeld.untilWantedBy('crons'), secondHeld.untilWantedBy('crons')]);
    const [a, b] = roles.agents as [AgentServer, AgentServer];
    for (const server of [a, b]) {
      await roles.killAgents(server);
      await roles.startAgents();
    }
    await Promise.all([firstHeld.release(), secondHeld.release()]);
    const firings = (timeMs: number) =>
      queryPostgres(`SELECT count(*)::int FROM agents.cron_firings WHERE due_at = '${iso(timeMs)}'`);
    const haveAllFired = (timeMs: number) => async () => (await firings(timeMs))[0] === cronIds.length;
    await until('each cron to fire at its first time', haveAllFired(firstMs), deadlineMs);

    // No process runs when the crons are due. The one started afterwards is killed while it fires the missed time.
    const thirdLockedRow = await LockedRow.of(roles.databaseUrl, threads[2] as string);
    await roles.killAgents(...roles.agents);
    await makeDue(secondMs);
    expect(await firings(secondMs)).toEqual([0]);
    await roles.startAgents();
    await thirdLockedRow.untilWantedBy('crons');
    await roles.killAgents(...roles.agents);
    await Promise.all([roles.startAgents(), roles.startAgents()]);
    await thirdLockedRow.release();
    await until('each cron to fire at its second time', haveAllFired(secondMs), deadlineMs);

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
