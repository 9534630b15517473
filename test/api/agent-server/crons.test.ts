import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { createCronRun, fireCrons } from '../../../pipelines/agents/crons/fire-cron.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { readErrorStatus, startAgentServer } from './start-agent-server.ts';

/** Crons through the stock client, whose types lack some of the fields that it sends and receives. */

const agent = forSuite(() => startAgentServer());
const crons = createProxyTo(() => agent.client.crons);

/** Fires all crons that are due within a year. */
const fireAll = (afterMs: number) =>
  fireCrons({
    database: agent.database,
    deploymentId: agent.owner.id,
    createCronRun: (tx, cron) => createCronRun(tx, agent.owner.id, cron, agent.services.agents),
    logger,
    now: async () => Date.now() + afterMs,
  });

const newYear = { schedule: '30 9 1 1 *', timezone: 'Europe/Berlin' };

describe('crons', () => {
  it('are created, read, updated, searched, counted and deleted', async () => {
    const made = (await crons.create('echo', {
      ...newYear,
      input: { text: 'hello' },
      metadata: { team: 'a' },
      endTime: '2099-01-01T00:00:00+02:00',
    } as never)) as unknown as Record<string, unknown>;
    const cronId = String(made.cron_id);
    expect(made).toMatchObject({
      schedule: '30 9 1 1 *',
      timezone: 'Europe/Berlin',
      thread_id: null,
      on_run_completed: 'delete',
      enabled: true,
      payload: { input: { text: 'hello' } },
      metadata: { team: 'a' },
      user_id: agent.owner.userId,
    });
    expect(new Date(String(made.end_time)).toISOString()).toBe('2098-12-31T22:00:00.000Z');
    expect(made.next_run_date).toMatch(/-01-01T08:30:00/);
    expect(await (await agent.ask('GET', `/runs/crons/${cronId}`)).json()).toEqual(made);
    const changed = await crons.update(cronId, { metadata: { b: 1 }, enabled: false, input: null } as never);
    expect(changed).toMatchObject({
      enabled: false,
      next_run_date: null,
      metadata: { team: 'a', b: 1 },
      payload: { input: null },
    });
    const assistantId = String(made.assistant_id);
    expect(await crons.search({ assistantId, metadata: { team: 'a' } } as never)).toEqual([changed]);
    const [selected] = await crons.search({ select: ['cron_id', 'now'] } as never);
    expect(selected).toEqual({ cron_id: cronId, now: expect.any(String) });
    const counts = [{ assistantId }, { threadId: randomUUID() }, {}].map((query) => crons.count(query));
    expect(await Promise.all(counts)).toEqual([1, 0, 1]);
    await crons.delete(cronId);
    expect(await readErrorStatus(crons.delete(cronId))).toBe(404);
    expect((await agent.ask('GET', `/runs/crons/${cronId}`)).status).toBe(404);
  });

  it.each<[string, object, number]>([
    ['four fields', { schedule: '* * * *' }, 422],
    ['six fields', { schedule: '0 * * * * *' }, 422],
    ['a day that does not exist', { schedule: '0 0 30 2 *' }, 422],
    ['an unknown time zone', { schedule: '* * * * *', timezone: 'Mars/Olympus' }, 422],
    ['an invalid time', { schedule: '* * * * *', end_time: 'soon' }, 422],
    ['an unknown assistant', { schedule: '* * * * *', assistant_id: 'nobody' }, 404],
    ['no schedule', {}, 422],
    ['a field that crons do not support', { schedule: '* * * * *', after_seconds: 5 }, 422],
    ['text that Postgres cannot store', { schedule: '* * * * *', metadata: { a: '\0' } }, 422],
  ])('are rejected for %s', async (_, body, status) => {
    const answer = await agent.ask('POST', '/runs/crons', { assistant_id: 'echo', ...body });
    expect([answer.status, await answer.json()]).toEqual([
      status,
      expect.objectContaining({ detail: expect.anything() }),
    ]);
  });

  it('of a thread require the thread and keep it', async () => {
    expect(await readErrorStatus(crons.createForThread(randomUUID(), 'echo', newYear))).toBe(404);
    const { thread_id: threadId } = await agent.client.threads.create();
    const asked = { ...newYear, onRunCompleted: 'delete' } as never;
    expect(await readErrorStatus(crons.createForThread(threadId, 'echo', asked))).toBe(422);
  });

  it('start runs on their thread or on a temporary one', async () => {
    const { thread_id: threadId } = await agent.client.threads.create();
    const on = (await crons.createForThread(threadId, 'echo', {
      ...newYear,
      input: { messages: [{ role: 'user', content: 'happy new year' }] },
      metadata: { team: 'b' },
    })) as unknown as { cron_id: string };
    const off = (await crons.create('echo', {
      ...newYear,
      input: { messages: [{ role: 'user', content: 'happy new year' }] },
    })) as unknown as { cron_id: string };
    expect(await fireAll(366 * 86_400_000)).toBe(2);
    expect(await fireAll(366 * 86_400_000)).toBe(0);
    agent.executor.wake();
    const [run] = await agent.client.runs.list(threadId);
    expect(run).toMatchObject({ metadata: { cron_id: on.cron_id, team: 'b' } });
    await agent.client.runs.join(threadId, run?.run_id ?? '');
    expect((await agent.client.runs.get(threadId, run?.run_id ?? '')).status).toBe('success');
    // The run is deleted after its end was published.
    const areRunsTemporaryAndSuccessful = async () => {
      const rows = await agent.database.query<{ status: string; temporary: boolean }>(
        `SELECT status, temporary FROM agents.runs WHERE metadata ->> 'cron_id' = $1`,
        [off.cron_id],
      );
      return rows.every(({ status, temporary }) => temporary && status === 'success');
    };
    await expect.poll(areRunsTemporaryAndSuccessful, { timeout: 10_000 }).toBe(true);
  });
});
