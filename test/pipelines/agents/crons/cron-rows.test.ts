import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Sql } from '../../../../infra/postgres/database.ts';
import {
  type CronFilter,
  countCrons,
  createCron,
  deleteCron,
  type NewCron,
  readCron,
  searchCrons,
  updateCron,
} from '../../../../pipelines/agents/crons/write-crons.ts';
import { expireThreads } from '../../../../pipelines/agents/threads/delete-thread.ts';
import { createThread } from '../../../../pipelines/agents/threads/write-threads.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { makeAgentRows } from './agent-rows.ts';

const stores = forSuite(() => freshStores());
let rows: Awaited<ReturnType<typeof makeAgentRows>>;
const nowMs = Date.parse('2026-04-22T10:00:30Z');
beforeEach(async () => {
  rows = await makeAgentRows(stores.database);
});

const make = (changes: Partial<NewCron> = {}, maxCrons = 100) =>
  createCron(
    stores.database,
    rows.deploymentId,
    {
      assistant_id: rows.assistantId,
      thread_id: null,
      schedule: '0 9 * * *',
      timezone: null,
      end_time: null,
      on_run_completed: changes.thread_id == null ? 'delete' : null,
      enabled: true,
      payload: { input: { text: 'a\u0000b' } },
      metadata: {},
      user_id: null,
      ...changes,
    },
    { maxCrons, now: async () => nowMs },
  );

describe('cron rows', () => {
  it('are read back as created, by their own deployment only', async () => {
    const made = await make({ timezone: 'Europe/Berlin', metadata: { team: 'a' } });
    expect(made).toMatchObject({
      schedule: '0 9 * * *',
      timezone: 'Europe/Berlin',
      next_run_date: '2026-04-23T07:00:00.000000Z',
      payload: { input: { text: 'a\u0000b' } },
      metadata: { team: 'a' },
      thread_id: null,
      end_time: null,
    });
    expect(await readCron(stores.database, rows.deploymentId, made.cron_id)).toEqual(made);
    const foreign = randomUUID();
    const notFound = expect.objectContaining({ code: 'CRON_NOT_FOUND' });
    await expect(readCron(stores.database, foreign, made.cron_id)).rejects.toEqual(notFound);
    await expect(updateCron(stores.database, foreign, made.cron_id, {})).rejects.toEqual(notFound);
    await expect(deleteCron(stores.database, foreign, made.cron_id)).rejects.toEqual(notFound);
    expect(await countCrons(stores.database, foreign, {})).toBe(0);
  });

  it('keep their thread, whose TTL passes between two runs', async () => {
    const { database } = stores;
    const { deploymentId } = rows;
    const thread = { metadata: {}, ifExists: 'raise', ttl: { minutes: 9, strategy: 'delete' } } as const;
    const { thread_id: threadId } = await createThread(database, deploymentId, thread);
    const { cron_id: cronId } = await make({ thread_id: threadId });
    await database.execute("UPDATE agents.threads SET expires_at = now() - interval '1 s' WHERE thread_id = $1", [
      threadId,
    ]);
    expect(await expireThreads(database, deploymentId)).toBe(0);
    expect(await readCron(database, deploymentId, cronId)).toMatchObject({ thread_id: threadId });
    await updateCron(database, deploymentId, cronId, { enabled: false });
    expect(await expireThreads(database, deploymentId)).toBe(1);
  });

  it('keep their threads, which are read once in a sweep, however many other threads expire', async () => {
    const { database } = stores;
    const { deploymentId, assistantId } = rows;
    const addThreads = (count: number, expiry: string) =>
      database.query<{ thread_id: string }>(
        `INSERT INTO agents.threads (deployment_id, thread_id, ttl_strategy, ttl_minutes, expires_at)
         SELECT $1, gen_random_uuid(), 'delete', 9, now() + $3::interval FROM generate_series(1, $2) RETURNING thread_id`,
        [deploymentId, count, expiry],
      );
    const kept = await addThreads(200, '-2 min');
    await database.execute(
      `INSERT INTO agents.crons (deployment_id, cron_id, assistant_id, thread_id, schedule, next_run_date, payload)
       SELECT $1, gen_random_uuid(), $2, thread, '0 9 * * *', now(), '{}' FROM unnest($3::uuid[]) thread`,
      [deploymentId, assistantId, kept.map(({ thread_id }) => thread_id)],
    );
    await addThreads(20, '-1 min');
    await addThreads(1_000, '1 h');
    let read = 0;
    const countReads = async (tx: Sql) =>
      (
        await tx.query<{ rows: number }>(
          "SELECT idx_tup_fetch AS rows FROM pg_stat_xact_user_tables WHERE relid = 'agents.threads'::regclass",
        )
      )[0]!.rows;
    const counting: typeof database = {
      ...database,
      transaction: (work, options) =>
        database.transaction(async (tx) => {
          // As in a large table.
          for (const plan of ['seqscan', 'bitmapscan']) await tx.execute(`SET LOCAL enable_${plan} = off`);
          const before = await countReads(tx);
          const result = await work(tx);
          read += (await countReads(tx)) - before;
          return result;
        }, options),
    };
    expect(await expireThreads(counting, deploymentId)).toBe(20);
    expect(read).toBeLessThan(600);
    expect(await expireThreads(database, deploymentId)).toBe(0);
  });

  it('are updated field by field; only a change of their times recomputes the next run date', async () => {
    const { cron_id, next_run_date } = await make({ metadata: { a: 1, b: 1 }, end_time: '2030-01-01T00:00:00Z' });
    const change = (changes: Parameters<typeof updateCron>[3], laterMs = 86_400_000 * 3) =>
      updateCron(stores.database, rows.deploymentId, cron_id, changes, async () => nowMs + laterMs);
    expect(await change({ metadata: { b: 2 }, payload: { webhook: '/x' } })).toMatchObject({
      metadata: { a: 1, b: 2 },
      payload: { input: { text: 'a\u0000b' }, webhook: '/x' },
      next_run_date,
    });
    expect(await change({ schedule: '0 12 * * *' })).toMatchObject({ next_run_date: '2026-04-25T12:00:00.000000Z' });
    expect(await change({ end_time: '2026-04-25T11:00:00Z' })).toMatchObject({ next_run_date: null });
    expect(await change({ end_time: null })).toMatchObject({
      end_time: null,
      next_run_date: '2026-04-25T12:00:00.000000Z',
    });
    expect(await change({ enabled: false })).toMatchObject({ next_run_date: null });
    await expect(change({ schedule: '0 0 30 2 *' })).rejects.toMatchObject({ code: 'CRON_SCHEDULE_INVALID' });
  });

  it('can be searched, sorted and counted', async () => {
    const [a, b, c] = [
      await make({ metadata: { team: 'a', n: 1 } }),
      await make({ metadata: { team: 'a', n: 2 }, enabled: false }),
      await make({ thread_id: rows.threadId, metadata: { team: 'b' }, schedule: '0 8 * * *' }),
    ];
    const search = async (filter: CronFilter, page: Partial<Parameters<typeof searchCrons>[3]> = {}) => {
      const found = await searchCrons(stores.database, rows.deploymentId, filter, {
        sortBy: 'created_at',
        sortOrder: 'desc',
        limitRows: 10,
        offsetRows: 0,
        ...page,
      });
      return found.map(({ cron_id }) => [a, b, c].findIndex((made) => made.cron_id === cron_id));
    };
    expect(await search({})).toEqual([2, 1, 0]);
    expect(await search({}, { limitRows: 1, offsetRows: 1 })).toEqual([1]);
    expect(await search({}, { sortBy: 'next_run_date', sortOrder: 'asc' })).toEqual([2, 0, 1]);
    expect(await search({ metadata: { team: 'a' } })).toEqual([1, 0]);
    expect(await search({ threadId: rows.threadId })).toEqual([2]);
    expect(await search({ enabled: false })).toEqual([1]);
    expect(await search({ assistantId: randomUUID() })).toEqual([]);
    expect(await countCrons(stores.database, rows.deploymentId, { metadata: { team: 'a' } })).toBe(2);
  });

  it('never exceed the limit, also with concurrent creation', async () => {
    const made = await Promise.allSettled(Array.from({ length: 10 }, () => make({}, 3)));
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
    expect(await countCrons(stores.database, rows.deploymentId, {})).toBe(3);
  });

  it('are deleted with their thread and their assistant, require an existing thread, and are limited', async () => {
    await make({ thread_id: rows.threadId });
    await make({}, 2);
    await expect(make({}, 2)).rejects.toMatchObject({ code: 'CRON_LIMIT_REACHED' });
    await expect(make({ thread_id: randomUUID() })).rejects.toMatchObject({ code: 'THREAD_NOT_FOUND' });
    const count = () => countCrons(stores.database, rows.deploymentId, {});
    await stores.database.execute('DELETE FROM agents.threads WHERE thread_id = $1', [rows.threadId]);
    expect(await count()).toBe(1);
    await stores.database.execute('DELETE FROM agents.assistants WHERE assistant_id = $1', [rows.assistantId]);
    expect(await count()).toBe(0);
  });
});
