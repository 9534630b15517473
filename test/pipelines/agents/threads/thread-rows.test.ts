import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import { buildThreadKey } from '../../../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { endRun } from '../../../../pipelines/agents/runs/end-run.ts';
import {
  deleteThread,
  expireThreads,
  pruneThreads,
  removeThreads,
} from '../../../../pipelines/agents/threads/delete-thread.ts';
import { readEarlierStarts } from '../../../../pipelines/agents/threads/deleted-threads.ts';
import { countThreads, searchThreads, type ThreadSearch } from '../../../../pipelines/agents/threads/search-threads.ts';
import { readThread } from '../../../../pipelines/agents/threads/thread.ts';
import { leaseThread, recordThreadState } from '../../../../pipelines/agents/threads/update-thread-state.ts';
import {
  copyThread,
  createThread,
  type NewThread,
  updateThread,
} from '../../../../pipelines/agents/threads/write-threads.ts';
import { createProxyTo, forSuite } from '../../../for-suite.ts';
import { untilLockWait } from '../../../infra/postgres/lock-waits.ts';
import { until } from '../../../infra/until.ts';
import { logger } from '../../../silent-logger.ts';
import { assistant, leaseMs, openRows, processId } from '../runs/run-rows.ts';

const rows = forSuite(() => openRows());
let org: string;
const database = createProxyTo(() => rows.database);

const make = async (more: Partial<NewThread> = {}) =>
  createThread(database, org, { metadata: {}, ifExists: 'raise', ...more });
async function recordState(threadId: string, state: Parameters<typeof recordThreadState>[4]): Promise<void> {
  const lease = await leaseThread(database, org, threadId, leaseMs);
  await recordThreadState(database, org, threadId, lease, state);
  await lease.release();
}
const missing = { code: 'THREAD_NOT_FOUND', status: 404 };
const expireNow = (threadId: string) =>
  database.execute(`UPDATE agents.threads SET expires_at = now() - interval '1 s' WHERE thread_id = $1`, [threadId]);

describe('threads', () => {
  beforeAll(async () => {
    org = await rows.newDeployment();
  });

  it('continue the starts of a deleted thread with the same id, also if the deletion commits during the creation', async () => {
    const threadId = randomUUID();
    const readStarts = async () => {
      const columns = 'starts, earlier_starts AS earlier';
      const [row] = await database.query<{ starts: number; earlier: number }>(
        `SELECT ${columns} FROM agents.threads WHERE thread_id = $1`,
        [threadId],
      );
      return { ...row, readers: await readEarlierStarts(database, org, threadId) };
    };
    await make({ threadId });
    await recordState(threadId, { values: '{}', next: [], interrupts: {} });
    expect(await readStarts()).toEqual({ starts: 1, earlier: 0, readers: 0 });
    let creating: Promise<unknown> | undefined;
    await database.transaction(async (tx) => {
      expect(await removeThreads(tx, org, [threadId])).toBe(1);
      creating = make({ threadId });
      await untilLockWait(database, 'INSERT INTO agents.threads%');
    });
    await creating;
    expect(await readStarts()).toEqual({ starts: 1, earlier: 1, readers: 1 });
    await recordState(threadId, { values: '{}', next: [], interrupts: {} });
    await deleteThread(database, org, threadId);
    expect(await readStarts()).toEqual({ readers: 2 });
    await make({ threadId });
    // A thread without events leaves the number as it is.
    await deleteThread(database, org, threadId);
    await make({ threadId });
    expect(await readStarts()).toEqual({ starts: 2, earlier: 2, readers: 2 });
  });

  it('are created once per id, and visible in their deployment only', async () => {
    const threadId = randomUUID();
    const made = await make({ threadId: threadId.toUpperCase(), metadata: { a: 1 } });
    expect(made).toMatchObject({
      thread_id: threadId,
      status: 'idle',
      values: null,
      interrupts: {},
      metadata: { a: 1 },
    });
    expect(made).not.toHaveProperty('ttl');
    await expect(make({ threadId })).rejects.toMatchObject({ code: 'THREAD_EXISTS', status: 409 });
    expect(await make({ threadId, ifExists: 'do_nothing' })).toEqual(made);
    expect(await readThread(database, org, threadId)).toEqual(made);
    const { foreignOrg } = rows;
    const foreign: (() => Promise<unknown>)[] = [
      () => readThread(database, foreignOrg, threadId),
      () => updateThread(database, foreignOrg, threadId, { metadata: { b: 2 } }),
      () => deleteThread(database, foreignOrg, threadId),
      () => leaseThread(database, foreignOrg, threadId, leaseMs),
    ];
    for (const attempt of foreign) await expect(attempt()).rejects.toMatchObject(missing);
    const copying = copyThread(database, foreignOrg, threadId);
    await expect(copying).rejects.toMatchObject({ code: 'THREAD_TO_COPY_NOT_FOUND', status: 409 });
    expect(await pruneThreads(database, foreignOrg, { threadIds: [threadId], strategy: 'delete' })).toBe(0);
    expect(await createThread(database, foreignOrg, { threadId, metadata: {}, ifExists: 'raise' })).toBeDefined();
    expect(await readThread(database, org, threadId)).toEqual(made);
  });

  it('merge metadata by member, and refuse text that Postgres cannot store', async () => {
    const { thread_id: id } = await make({ metadata: { a: 1, b: { c: 1 } } });
    const changed = await updateThread(database, org, id, { metadata: { b: 2, d: null } });
    expect(changed.metadata).toEqual({ a: 1, b: 2, d: null });
    const refused = { code: 'INVALID_REQUEST', fields: [expect.objectContaining({ loc: ['body', 'metadata'] })] };
    await expect(make({ metadata: { a: '\u0000' } })).rejects.toMatchObject(refused);
    await expect(updateThread(database, org, id, { metadata: { '\ud800': 1 } })).rejects.toMatchObject(refused);
  });

  it('have one lease at a time, none while a run is pending; no run starts during the lease', async () => {
    const { thread_id: id } = await make();
    const lease = await leaseThread(database, org, id, leaseMs);
    await expect(leaseThread(database, org, id, leaseMs)).rejects.toMatchObject({ code: 'THREAD_BUSY' });
    await recordThreadState(database, org, id, lease, { values: '{"n":1}', next: ['ask'], interrupts: {} });
    expect(await readThread(database, org, id)).toMatchObject({ status: 'interrupted', values: { n: 1 } });
    const run = await rows.run(id, {}, org);
    expect(await claimRuns(database, org, { slots: 9, processId })).toEqual([]);
    await lease.release();
    await expect(leaseThread(database, org, id, leaseMs)).rejects.toMatchObject({ code: 'THREAD_BUSY' });
    expect(await claimRuns(database, org, { slots: 9, processId })).toMatchObject([{ runId: run.run_id }]);
    const { thread_id: other } = await make();
    await leaseThread(database, org, other, 0);
    await (await leaseThread(database, org, other, leaseMs)).release();
  });

  it('keep the state recorded under the valid lease, and ignore writes under an expired one', async () => {
    const { thread_id: id } = await make();
    const record = (lease: Awaited<ReturnType<typeof leaseThread>>, n: number) =>
      recordThreadState(database, org, id, lease, { values: `{"n":${n}}`, next: [], interrupts: {} });
    const expired = await leaseThread(database, org, id, 0);
    await record(expired, 1);
    expect(await readThread(database, org, id)).toMatchObject({ values: null });
    const lease = await leaseThread(database, org, id, leaseMs);
    await record(expired, 2);
    expect(await readThread(database, org, id)).toMatchObject({ values: null });
    await record(lease, 3);
    await lease.release();
    await record(lease, 4);
    expect(await readThread(database, org, id)).toMatchObject({ values: { n: 3 } });
  });

  it('can be copied with state and history, without runs', async () => {
    const { thread_id: id } = await make({ metadata: { a: 1 } });
    await rows.checkpoint(buildThreadKey(org, id), '1');
    await recordState(id, { values: JSON.stringify({ text: 'x\u0000' }), next: [], interrupts: {} });
    await rows.run(id, {}, org);
    const { copy, isDuringWrite } = await copyThread(database, org, id);
    expect(isDuringWrite).toBe(false);
    expect(copy).toMatchObject({ status: 'idle', values: { text: 'x\u0000' }, metadata: { a: 1 } });
    expect(copy.thread_id).not.toBe(id);
    expect(await rows.listCheckpointIds(buildThreadKey(org, copy.thread_id))).toEqual(['1']);
    await deleteThread(database, org, id);
    expect(await rows.listCheckpointIds(buildThreadKey(org, id))).toEqual([]);
    expect(await readThread(database, org, copy.thread_id)).toEqual(copy);
  });

  it('copied before runs of other graphs start name the graph of their state, and have its config', async () => {
    const { thread_id: id } = await make({ metadata: { a: 1 } });
    const add = (graph_id: string, config: Record<string, unknown>) =>
      rows.run(id, { assistant: { ...assistant, graph_id }, threadConfig: { configurable: config } }, org);
    const copyNow = async () => (await copyThread(database, org, id, { b: 2 })).copy;
    await add('first', { n: 1 });
    const [claimed] = await claimRuns(database, org, { slots: 1, processId });
    await add('second', { n: 2 });
    await add('third', { n: 3 });
    const { assistant_id } = assistant;
    const first = { metadata: { a: 1, b: 2, graph_id: 'first', assistant_id }, config: { configurable: { n: 1 } } };
    expect(await copyNow()).toMatchObject(first);
    await endRun(database, claimed!, { status: 'success', values: '{}' });
    expect(await copyNow()).toMatchObject(first);
    await claimRuns(database, org, { slots: 1, processId });
    expect(await copyNow()).toMatchObject({ metadata: { graph_id: 'second' }, config: { configurable: { n: 2 } } });
    await updateThread(database, org, id, { metadata: { graph_id: 'chosen' } });
    expect(await copyNow()).toMatchObject({ metadata: { graph_id: 'chosen' } });
  });

  it('copied during an update of the state have a row that may be older than the state', async () => {
    const { thread_id: id } = await make();
    const lease = await leaseThread(database, org, id, leaseMs);
    expect(await copyThread(database, org, id)).toMatchObject({ isDuringWrite: true });
    await lease.release();
    expect(await copyThread(database, org, id)).toMatchObject({ isDuringWrite: false });
  });

  it('get runs while they are copied', async () => {
    const { thread_id: id } = await make();
    await rows.checkpoint(buildThreadKey(org, id), '1');
    await onChange('INSERT ON agents.checkpoints', 'PERFORM pg_advisory_xact_lock(77)', async () => {
      let copying: ReturnType<typeof copyThread> | undefined;
      await database.transaction(async (tx) => {
        await tx.query('SELECT pg_advisory_xact_lock(77)');
        copying = copyThread(database, org, id);
        await untilLockWait(database, '%agents.checkpoints%');
        await rows.run(id, {}, org);
      });
      expect(await copying).toMatchObject({ isDuringWrite: false });
    });
  });

  it('can be pruned; busy threads only with the strategy delete', async () => {
    const [plain, busy] = [(await make()).thread_id, (await make()).thread_id];
    for (const id of [plain, busy]) for (const n of ['1', '2']) await rows.checkpoint(buildThreadKey(org, id), n);
    await rows.run(busy, {}, org);
    const threadIds = [plain, busy, randomUUID()];
    expect(await pruneThreads(database, org, { threadIds, strategy: 'keep_latest' })).toBe(1);
    expect(await rows.listCheckpointIds(buildThreadKey(org, plain))).toEqual(['2']);
    expect(await rows.listCheckpointIds(buildThreadKey(org, busy))).toEqual(['1', '2']);
    expect(await pruneThreads(database, org, { threadIds, strategy: 'delete' })).toBe(2);
    for (const id of [plain, busy]) await expect(readThread(database, org, id)).rejects.toMatchObject(missing);
  });

  it('are deleted together with others in small transactions', async () => {
    await database.execute('CREATE TABLE thread_deletions (thread_id uuid, transaction_id xid8)');
    await onChange(
      'DELETE ON agents.threads',
      'INSERT INTO thread_deletions VALUES (old.thread_id, pg_current_xact_id())',
      async () => {
        const threadIds = await Promise.all(Array.from({ length: 120 }, async () => (await make()).thread_id));
        const repeated = [...threadIds, ...threadIds.map((id) => id.toUpperCase())];
        expect(await pruneThreads(database, org, { threadIds: repeated, strategy: 'delete' })).toBe(120);
        const groups = await database.query<{ size: number }>(
          'SELECT count(*)::int AS size FROM thread_deletions GROUP BY transaction_id ORDER BY 1',
        );
        expect(groups.map(({ size }) => size)).toEqual([20, 50, 50]);
      },
    );
  });
});

/** Executes `sql` before each `change` of a row, such as `DELETE ON agents.threads`, while `work` runs. */
async function onChange(change: string, sql: string, work: () => Promise<void>): Promise<void> {
  await database.execute(`CREATE FUNCTION on_change() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN ${sql}; RETURN coalesce(new, old); END $$`);
  await database.execute(`CREATE TRIGGER on_change BEFORE ${change} FOR EACH ROW EXECUTE FUNCTION on_change()`);
  try {
    await work();
  } finally {
    await database.execute('DROP FUNCTION on_change CASCADE');
  }
}

describe('threads with a time to live', () => {
  beforeAll(async () => {
    org = await rows.newDeployment();
  });

  it('return their TTL, and restart it with every change', async () => {
    const { thread_id: id, ttl } = await make({ ttl: { minutes: 5, strategy: 'delete' } });
    expect(ttl).toMatchObject({ strategy: 'delete', ttl_minutes: 5 });
    expect((Date.parse(ttl?.expires_at as string) - Date.now()) / 60_000).toBeCloseTo(5, 0);
    await expireNow(id);
    expect((await updateThread(database, org, id, { metadata: { a: 1 } })).ttl?.ttl_minutes).toBe(5);
    expect(await expireThreads(database, org)).toBe(0);
    const longer = await updateThread(database, org, id, { ttl: { minutes: 0.5, strategy: 'keep_latest' } });
    expect(longer.ttl).toMatchObject({ strategy: 'keep_latest', ttl_minutes: 0.5 });
  });

  it('expire after the TTL, but not while busy or leased', async () => {
    const [deleted, pruned, busy, leased] = [
      (await make({ ttl: { minutes: 9, strategy: 'delete' } })).thread_id,
      (await make({ ttl: { minutes: 9, strategy: 'keep_latest' } })).thread_id,
      (await make({ ttl: { minutes: 9, strategy: 'delete' } })).thread_id,
      (await make({ ttl: { minutes: 9, strategy: 'delete' } })).thread_id,
    ];
    await rows.run(busy, {}, org);
    const lease = await leaseThread(database, org, leased, leaseMs);
    for (const n of ['1', '2']) await rows.checkpoint(buildThreadKey(org, pruned), n);
    for (const id of [deleted, pruned, busy, leased]) await expireNow(id);
    expect(await expireThreads(database, rows.foreignOrg)).toBe(0);
    expect(await expireThreads(database, org)).toBe(2);
    expect(await expireThreads(database, org)).toBe(0);
    await expect(readThread(database, org, deleted)).rejects.toMatchObject(missing);
    expect(await rows.listCheckpointIds(buildThreadKey(org, pruned))).toEqual(['2']);
    // The end of the thread's run restarts the TTL.
    const [claimed] = await claimRuns(database, org, { slots: 1, processId });
    await endRun(database, claimed as NonNullable<typeof claimed>, { status: 'success', values: '{}' });
    await lease.release();
    expect(await expireThreads(database, org)).toBe(1);
    await expect(readThread(database, org, leased)).rejects.toMatchObject(missing);
    expect(await readThread(database, org, busy)).toMatchObject({ status: 'idle' });
  });

  it('expire, and are deleted, pruned and copied, even if that takes longer than other statements may', async () => {
    const threads = Array.from({ length: 5 }, () => make({ ttl: { minutes: 9, strategy: 'delete' } }));
    const [expired, deleted, pruned, other, copied] = (await Promise.all(threads)).map(({ thread_id }) => thread_id);
    for (const id of [expired, deleted, pruned, other, copied])
      for (const n of ['1', '2']) await rows.checkpoint(buildThreadKey(org, id!), n);
    await expireNow(expired!);
    const limited = openDatabase({ url: rows.stores.databaseUrl, logger, timeoutMs: 3_000 });
    try {
      await onChange('INSERT OR DELETE ON agents.checkpoints', 'PERFORM pg_sleep(2)', async () => {
        const [count] = await Promise.all([
          expireThreads(limited, org),
          deleteThread(limited, org, deleted!),
          pruneThreads(limited, org, { threadIds: [pruned!, other!], strategy: 'delete' }),
          copyThread(limited, org, copied!),
        ]);
        expect(count).toBe(1);
      });
    } finally {
      await limited.close();
    }
    for (const id of [expired, deleted, pruned, other])
      await expect(readThread(database, org, id!)).rejects.toMatchObject(missing);
  });

  it('expire one after the other, until the sweep is stopped', async () => {
    const large = (await make({ ttl: { minutes: 9, strategy: 'delete' } })).thread_id;
    const other = (await make({ ttl: { minutes: 9, strategy: 'delete' } })).thread_id;
    await rows.checkpoint(buildThreadKey(org, large), '1');
    for (const id of [large, other]) await expireNow(id);
    const stopping = new AbortController();
    await onChange('DELETE ON agents.checkpoints', 'PERFORM pg_sleep(3600)', async () => {
      const sweep = expireThreads(database, org, stopping.signal).catch(() => 'stopped');
      await until('the deletion is in progress', async () => {
        const sleeping = await database.query(`SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'`);
        return sleeping.length > 0;
      });
      expect(await updateThread(database, org, other, { metadata: { a: 1 } })).toMatchObject({ metadata: { a: 1 } });
      stopping.abort();
      expect(await sweep).toBe('stopped');
    });
    expect(await readThread(database, org, large)).toMatchObject({ thread_id: large });
    expect(await rows.listCheckpointIds(buildThreadKey(org, large))).toEqual(['1']);
    expect(await expireThreads(database, org, stopping.signal)).toBe(0);
    expect(await expireThreads(database, org)).toBe(1);
  });
});

describe('search', () => {
  const ids: string[] = [];
  beforeAll(async () => {
    org = await rows.newDeployment();
    for (const n of [0, 1, 2, 3]) {
      const { thread_id: id } = await make({ metadata: { n, even: n % 2 === 0, deep: { list: [n, { m: n }] } } });
      ids.push(id);
      const values = { n, text: 'nul\u0000', messages: [{ id: `m${n}` }] };
      await recordState(id, { values: JSON.stringify(values), next: n === 3 ? ['ask'] : [], interrupts: {} });
    }
    await rows.run(ids[0], {}, org);
    await rows.run(undefined, { temporary: true }, org);
  });

  it.each([
    ['all but hidden threads', {}, [3, 2, 1, 0]],
    ['an empty filter', { metadata: {}, values: {} }, [3, 2, 1, 0]],
    ['metadata', { metadata: { even: true } }, [2, 0]],
    ['nested metadata', { metadata: { deep: { list: [{ m: 1 }] } } }, [1]],
    ['values', { values: { messages: [{ id: 'm2' }] } }, [2]],
    ['values that had a NUL character', { values: { text: 'nul', n: 1 } }, [1]],
    ['interrupted threads', { status: 'interrupted' }, [3]],
    ['busy threads', { status: 'busy' }, [0]],
    ['nothing', { metadata: { n: 9 } }, []],
    ['ascending', { sortOrder: 'asc' }, [0, 1, 2, 3]],
    ['by id, descending', { sortBy: 'thread_id' }, [3, 2, 1, 0]],
    ['a page', { limit: 2, offset: 1 }, [2, 1]],
  ] as [string, Partial<ThreadSearch>, number[]][])('finds %s', async (_name, search, expected) => {
    const whole = { sortBy: 'created_at', sortOrder: 'desc', limit: 10, offset: 0, ...search } as const;
    const { threads, total } = await searchThreads(database, org, whole);
    expect(threads.map(({ thread_id }) => ids.indexOf(thread_id))).toEqual(expected);
    const { limit: _limit, offset: _offset, sortBy: _by, sortOrder: _order, ...filter } = whole;
    expect(await countThreads(database, org, filter)).toBe(total);
    expect(total).toBe('limit' in search ? 4 : expected.length);
  });

  it('finds threads by id in the own deployment only', async () => {
    const search = {
      ids: [ids[1] as string, randomUUID()],
      sortBy: 'status',
      sortOrder: 'asc',
      limit: 9,
      offset: 0,
    } as const;
    expect((await searchThreads(database, org, search)).total).toBe(1);
    expect((await searchThreads(database, rows.foreignOrg, search)).total).toBe(0);
  });
});
