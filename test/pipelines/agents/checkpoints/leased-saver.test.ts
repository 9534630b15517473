import { randomUUID } from 'node:crypto';
import { HumanMessage } from '@langchain/core/messages';
import { PostgresSaver } from '@langchain/langgraph-checkpoint-postgres';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { buildThreadKey } from '../../../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { isLeaseLost, LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import { forSuite } from '../../../for-suite.ts';
import { beginEarly, configOf, makeCheckpoint, metadata, put } from './put-checkpoints.ts';
import { type ActiveRun, openThreads } from './threads.ts';

const threads = forSuite(() => openThreads());

const begin = async () => threads.startRun(await threads.newThread());
test('the checkpoint tables match those the library would create', async () => {
  await new PostgresSaver(threads.pool, undefined, { schema: 'theirs' }).setup();
  const listColumns = (schema: string) =>
    threads.database.query<Record<string, unknown>>(
      `SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
       WHERE table_schema = $1 AND table_name LIKE 'checkpoint%'
         AND column_name NOT IN ('run_id', 'replaced', 'replaced_run_id', 'replaced_type', 'replaced_blob')
       ORDER BY table_name, ordinal_position`,
      [schema],
    );
  const listConstraints = (schema: string) =>
    threads.database.query(
      `SELECT c.relname, pg_get_constraintdef(k.oid) AS definition FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
       WHERE k.connamespace = $1::regnamespace AND k.contype = 'p' AND c.relname LIKE 'checkpoint%' ORDER BY c.relname`,
      [schema],
    );
  const listMigrations = (schema: string) =>
    threads.database.query(`SELECT v FROM ${schema}.checkpoint_migrations ORDER BY v`);
  expect(await listColumns('agents')).toEqual(await listColumns('theirs'));
  expect(await listConstraints('agents')).toEqual(await listConstraints('theirs'));
  expect(await listMigrations('agents')).toEqual(await listMigrations('theirs'));
});

test('a checkpoint names its own run, and drops run metadata copied from an earlier checkpoint', async () => {
  const run = await begin();
  const checkpoint = makeCheckpoint(run.saver, { a: 1 });
  await put(run, checkpoint, { run_id: 'earlier', step: 7 });
  const known = {
    run_id: run.runId,
    run_attempt: 1,
    graph_id: 'graph',
    assistant_id: 'assistant',
    thread_id: run.threadId,
  };
  expect((await run.saver.getTuple(configOf(run)))?.metadata).toEqual({ ...metadata, step: 7, ...known });

  const holder = await threads.leaseThread(run.threadId);
  const edited = makeCheckpoint(holder, { a: 2 });
  await put({ key: run.key, saver: holder }, edited, known);
  expect((await new LeasedSaver(threads.pool).getTuple(configOf(run)))?.metadata).toEqual({
    ...metadata,
    thread_id: run.threadId,
  });
});

test('a function in the state is stored as undefined, and the thread stays readable', async () => {
  const run = await begin();
  const checkpoint = makeCheckpoint(run.saver, { call: () => 1, name: Symbol('name'), kept: 1 });
  await put(run, checkpoint);
  await run.saver.putWrites(configOf(run, checkpoint.id), [['call', () => 1]], 't');
  const stored = (await run.saver.getTuple(configOf(run)))!;
  expect(stored.checkpoint.channel_values).toEqual({ kept: 1 });
  expect(stored.pendingWrites).toEqual([['t', 'call', undefined]]);
});

test('a record that looks like a class but cannot be created stays as it is, next to messages', async () => {
  const run = await begin();
  const unknown = { lc: 1, type: 'constructor', id: ['langchain', 'nope', 'Thing'], kwargs: {} };
  const refused = {
    ...{ lc: 1, type: 'constructor', id: ['langchain_core', 'prompts', 'PromptTemplate'] },
    kwargs: { template: '{a', inputVariables: ['a'] },
  };
  const messages = [new HumanMessage({ id: '1', content: 'hello' }), { unknown, set: new Set([1]) }];
  const checkpoint = makeCheckpoint(run.saver, { unknown, messages });
  await put(run, checkpoint, { given: unknown });
  await run.saver.putWrites(configOf(run, checkpoint.id), [['refused', [refused]]], 't');
  const stored = (await run.saver.getTuple(configOf(run)))!;
  expect(stored.checkpoint.channel_values).toEqual({ unknown, messages });
  expect((stored.checkpoint.channel_values.messages as unknown[])[0]).toBeInstanceOf(HumanMessage);
  expect(stored.pendingWrites).toEqual([['t', 'refused', [refused]]]);
  expect(stored.metadata).toMatchObject({ given: unknown });
});

test('records within records that cannot be created are not deserialised once for each of them', async () => {
  const run = await begin();
  let nested: object = { lc: 1, type: 'constructor', id: ['unknown'], kwargs: {} };
  for (let depth = 0; depth < 900; depth += 1) nested = { lc: 0, nested };
  await put(run, makeCheckpoint(run.saver, { nested }));
  const loads = vi.spyOn(run.saver.serde, 'loadsTyped');
  const stored = (await run.saver.getTuple(configOf(run)))!;
  expect(stored.checkpoint.channel_values).toEqual({ nested });
  const bytes = loads.mock.calls.reduce((sum, [, data]) => sum + data.length, 0);
  expect(bytes).toBeLessThan(7 * JSON.stringify(nested).length);
});

test('a value that JSON cannot represent is refused, and the state before it stays', async () => {
  const run = await begin();
  const before = makeCheckpoint(run.saver, { messages: ['hello'] });
  await put(run, before);
  const messages = ['hello', { rows: 10n }];
  const refused = { code: 'STATE_NOT_SERIALIZABLE', message: expect.stringMatching(/'messages'.*BigInt/) };
  await expect(put(run, makeCheckpoint(run.saver, { messages }))).rejects.toMatchObject(refused);
  await expect(run.saver.putWrites(configOf(run, before.id), [['messages', messages]], 't')).rejects.toMatchObject(
    refused,
  );
  const text = '[unable to serialize, circular reference is too complex to analyze]';
  await run.saver.putWrites(configOf(run, before.id), [['text', text]], 't');
  const stored = (await run.saver.getTuple(configOf(run)))!;
  expect(stored.checkpoint.channel_values).toEqual({ messages: ['hello'] });
  expect(stored.pendingWrites).toEqual([['t', 'text', text]]);
});

test('text that jsonb refuses is kept in values and left out of metadata', async () => {
  const run = await begin();
  const odd = { text: 'nul \u0000, half \ud800, escaped \\u0000 \\ud800, whole 😀' };
  await put(run, makeCheckpoint(run.saver, { odd, bytes: new Uint8Array([0, 255, 92]) }), { odd, '\u0000key': 1 });
  await run.saver.putWrites(
    configOf(run, (await run.saver.getTuple(configOf(run)))!.checkpoint.id),
    [['odd', odd]],
    't',
  );
  const stored = (await run.saver.getTuple(configOf(run)))!;
  expect(stored.checkpoint.channel_values).toEqual({ odd, bytes: Buffer.from([0, 255, 92]) });
  expect(stored.pendingWrites).toEqual([['t', 'odd', odd]]);
  expect(stored.metadata).toMatchObject({
    odd: { text: 'nul , half \ufffd, escaped \\u0000 \\ud800, whole 😀' },
    key: 1,
  });
});

test('writes two thousand channels with 24 MB in one statement and reads them back', async () => {
  const run = await begin();
  const values = Object.fromEntries(
    Array.from({ length: 2000 }, (_, index) => [`channel "${index}", {it's}`, { text: `${index}`.repeat(3000) }]),
  );
  const queries = vi.spyOn(threads.pool, 'query');
  const connects = vi.spyOn(threads.pool, 'connect');
  await put(run, makeCheckpoint(run.saver, values));
  expect(queries.mock.calls.length).toBe(1);
  expect(connects.mock.calls.length).toBe(1);
  queries.mockRestore();
  connects.mockRestore();
  expect((await run.saver.getTuple(configOf(run)))?.checkpoint.channel_values).toEqual(values);
});

test('a version is greater than its predecessor, and unique across branches', () => {
  const saver = new LeasedSaver(threads.pool);
  const versions = [saver.getNextVersion(undefined)];
  for (let count = 0; count < 1000; count += 1) versions.push(saver.getNextVersion(versions.at(-1)));
  const texts = versions.map(String);
  expect([...texts].sort((a, b) => a.localeCompare(b))).toEqual(texts);
  expect(texts[0]).toMatch(/^0{15}1\.[0-9a-f]{16}$/);
  expect(saver.getNextVersion(versions[3])).not.toBe(versions[4]);
});

test('keeps the first ordinary write of a task and replaces its special writes', async () => {
  const run = await begin();
  const checkpoint = makeCheckpoint(run.saver, { a: 1 });
  await put(run, checkpoint);
  const config = configOf(run, checkpoint.id);
  await run.saver.putWrites(
    config,
    [
      ['a', 'first'],
      ['__resume__', 1],
    ],
    't',
  );
  await run.saver.putWrites(
    config,
    [
      ['a', 'second'],
      ['__resume__', 2],
      ['__resume__', 3],
    ],
    't',
  );
  const { pendingWrites } = (await run.saver.getTuple(config))!;
  expect(pendingWrites).toEqual([
    ['t', '__resume__', 3],
    ['t', 'a', 'first'],
  ]);
});

describe('an invalid lease', () => {
  const executeOnRun = (sql: string) => async (run: ActiveRun) => {
    await threads.database.execute(sql, [run.runId]);
    return run.saver;
  };
  const leaseThreadWith = (change: string) => async (run: ActiveRun) => {
    const saver = await threads.leaseThread(run.threadId);
    await threads.database.execute(`UPDATE agents.threads SET ${change} WHERE thread_id = $1`, [run.threadId]);
    return saver;
  };
  const invalidations: Record<string, (run: ActiveRun) => Promise<LeasedSaver>> = {
    'another attempt has the lease': executeOnRun(
      `UPDATE agents.runs SET lease_token = gen_random_uuid() WHERE run_id = $1`,
    ),
    'the run is pending again': executeOnRun(`UPDATE agents.runs SET status = 'pending' WHERE run_id = $1`),
    'the run ended': executeOnRun(`UPDATE agents.runs SET status = 'error' WHERE run_id = $1`),
    'the run was deleted': executeOnRun('DELETE FROM agents.runs WHERE run_id = $1'),
    'the run belongs to another thread': async (run) => {
      const other = await begin();
      return new LeasedSaver(threads.pool, { leaseToken: other.leaseToken, runId: run.runId });
    },
    'the thread lease expired': leaseThreadWith(`write_until = now() - interval '1 ms'`),
    'the thread lease was released': leaseThreadWith('write_token = NULL'),
  };
  test.each(Object.keys(invalidations))('%s: nothing is written or deleted', async (invalidation) => {
    const run = await begin();
    const checkpoint = makeCheckpoint(run.saver, { a: 1 });
    await put(run, checkpoint);
    const before = await threads.rowsOf(run.key);
    const saver = await invalidations[invalidation]!(run);
    await expect(put({ key: run.key, saver }, makeCheckpoint(saver, { a: 2 }))).rejects.toMatchObject({
      code: 'LEASE_LOST',
    });
    await expect(saver.putWrites(configOf(run, checkpoint.id), [['a', 1]], 't')).rejects.toMatchObject({
      code: 'LEASE_LOST',
    });
    await expect(saver.deleteThread(run.key)).rejects.toMatchObject({ code: 'LEASE_LOST' });
    expect(await threads.rowsOf(run.key)).toEqual(before);
  });

  test('a saver without a lease, an invalid thread key, and other threads are refused', async () => {
    const run = await begin();
    const reader = new LeasedSaver(threads.pool);
    await expect(put({ key: run.key, saver: reader }, makeCheckpoint(reader, { a: 1 }))).rejects.toMatchObject({
      code: 'INTERNAL',
    });
    await expect(put({ key: 'mine', saver: run.saver }, makeCheckpoint(reader, { a: 1 }))).rejects.toThrow("'mine'");
    const foreign = buildThreadKey(randomUUID(), run.threadId);
    for (const key of [foreign, (await begin()).key]) {
      const refused = { code: 'STATE_NOT_OWN' };
      const checkpoint = makeCheckpoint(reader, { a: 1 });
      await expect(put({ key, saver: run.saver }, checkpoint)).rejects.toMatchObject(refused);
      const writing = run.saver.putWrites(configOf({ key }, checkpoint.id), [['a', 1]], 't');
      await expect(writing).rejects.toMatchObject(refused);
      await expect(run.saver.deleteThread(key)).rejects.toMatchObject(refused);
    }
  });
});

test('requeueing a run waits for a write in progress', async () => {
  const run = await begin();
  const writer = await threads.pool.connect();
  const requeuer = await threads.pool.connect();
  onTestFinished(() => {
    writer.release(true);
    requeuer.release(true);
  });
  await writer.query('BEGIN');
  const { rows } = await writer.query('SELECT agents.lease_is_valid($1, $2, $3) AS holds', [
    threads.deploymentId,
    run.threadId,
    run.leaseToken,
  ]);
  expect(rows).toEqual([{ holds: true }]);
  await requeuer.query(`SET lock_timeout = '200ms'`);
  const requeue = () => requeuer.query(`UPDATE agents.runs SET status = 'pending' WHERE run_id = $1`, [run.runId]);
  await expect(requeue()).rejects.toMatchObject({ code: '55P03' });
  await writer.query('COMMIT');
  await requeue();
});

test('of two attempts that write concurrently, only the one with the lease stores checkpoints', async () => {
  const first = await begin();
  const outcomes: Promise<unknown>[] = [];
  const putMany = (run: ActiveRun) => {
    for (let count = 0; count < 40; count += 1) outcomes.push(put(run, makeCheckpoint(run.saver, { by: run.attempt })));
  };
  putMany(first);
  const second = await threads.startAgain(first);
  // From this time on, no write of the first attempt may be stored.
  const [{ now }] = (await threads.database.query<{ now: number }>(
    `SELECT count(*) AS now FROM agents.checkpoints WHERE thread_id = $1`,
    [first.key],
  )) as [{ now: number }];
  putMany(second);
  putMany(first);
  const settled = await Promise.allSettled(outcomes);
  const failures = settled.filter((outcome) => outcome.status === 'rejected');
  expect(failures.every(({ reason }) => isLeaseLost(reason))).toBe(true);
  const rows = await threads.database.query<{ attempt: number; rows: number }>(
    `SELECT (metadata ->> 'run_attempt')::int AS attempt, count(*) AS rows FROM agents.checkpoints
     WHERE thread_id = $1 GROUP BY 1 ORDER BY 1`,
    [first.key],
  );
  expect(rows.find(({ attempt }) => attempt === 2)).toEqual({ attempt: 2, rows: 40 });
  expect(rows.find(({ attempt }) => attempt === 1)?.rows ?? 0).toBe(now);
  expect(failures.length).toBe(80 - now);
});

test('a write succeeds after its connection is lost', async () => {
  const run = await begin();
  await put(run, makeCheckpoint(run.saver, { a: 1 }));
  const checkpoint = makeCheckpoint(run.saver, { a: 2 });
  let writing: Promise<unknown> | undefined;
  await threads.database.transaction(async (tx) => {
    await tx.query('SELECT FROM agents.runs WHERE run_id = $1 FOR UPDATE', [run.runId]);
    writing = put(run, checkpoint);
    writing.catch(() => undefined);
    await vi.waitFor(
      async () => {
        const terminated = await tx.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%checkpoint%'`,
        );
        expect(terminated).toHaveLength(1);
      },
      { timeout: 10_000 },
    );
  });
  await writing;
  expect(await run.saver.getTuple(configOf(run))).toMatchObject({ checkpoint: { id: checkpoint.id } });
});

describe('a saver that answers early', () => {
  test('gathers writes into one statement, and flushes them before a read', async () => {
    const run = await beginEarly(threads);
    const first = makeCheckpoint(run.saver, { a: 1, b: 'two' });
    const config = await put(run, first);
    await run.saver.putWrites(
      config,
      [
        ['c', 'x'],
        ['d', { deep: ['y'] }],
      ],
      'task',
    );
    await run.saver.putWrites(config, [['c', 'not again']], 'task');
    await run.saver.putWrites(config, [['__error__', 'once']], 'other');
    await run.saver.putWrites(config, [['__error__', 'twice']], 'other');
    const second = makeCheckpoint(run.saver, { a: 2 });
    await run.saver.put(config, second, metadata, second.channel_versions);
    expect(run.sent).toEqual([]);
    expect(await run.saver.getTuple(configOf(run))).toMatchObject({
      checkpoint: { id: second.id, channel_values: { a: 2 } },
    });
    expect(run.sent).toEqual(['agents_write_state', 'agents_latest_checkpoint']);
    const tuple = await run.saver.getTuple(configOf(run, first.id));
    expect(tuple).toMatchObject({ checkpoint: { channel_values: { a: 1, b: 'two' } } });
    expect(tuple?.pendingWrites).toEqual(
      expect.arrayContaining([
        ['task', 'c', 'x'],
        ['task', 'd', { deep: ['y'] }],
        ['other', '__error__', 'twice'],
      ]),
    );
    expect(tuple?.pendingWrites).toHaveLength(3);
  });

  test('flushes after batchDelayMs, and at once when much is buffered', async () => {
    const soon = await beginEarly(threads, { batchDelayMs: 1 });
    await put(soon, makeCheckpoint(soon.saver, { a: 1 }));
    await expect.poll(async () => (await threads.rowsOf(soon.key)).checkpoints).toBe(1);
    const large = await beginEarly(threads);
    await put(large, makeCheckpoint(large.saver, { a: 'x'.repeat(5_000_000) }));
    expect(await threads.rowsOf(large.key)).toMatchObject({ checkpoints: 1, blobs: 1 });
  });

  test('rejects the next call after the lease was lost, and writes nothing more', async () => {
    const run = await beginEarly(threads);
    await put(run, makeCheckpoint(run.saver, { a: 1 }));
    await threads.startAgain(run);
    await expect(run.saver.settled()).rejects.toSatisfy(isLeaseLost);
    await expect(put(run, makeCheckpoint(run.saver, { a: 2 }))).rejects.toSatisfy(isLeaseLost);
    await expect(run.saver.getTuple(configOf(run))).rejects.toSatisfy(isLeaseLost);
    expect(run.failures).toHaveLength(1);
    expect(run.sent).toEqual(['agents_write_state']);
    expect(await threads.rowsOf(run.key)).toEqual({ checkpoints: 0, blobs: 0, writes: 0 });
  });
});
