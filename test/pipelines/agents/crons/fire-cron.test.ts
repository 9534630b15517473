import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { readDatabaseClock } from '../../../../infra/postgres/clock.ts';
import type { Sql } from '../../../../infra/postgres/database.ts';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import {
  type FiringDeps,
  fireCrons,
  getMsToNextCron,
  startCrons,
} from '../../../../pipelines/agents/crons/fire-cron.ts';
import {
  type Cron,
  createCron,
  disableCron,
  type NewCron,
  readCron,
  updateCron,
} from '../../../../pipelines/agents/crons/write-crons.ts';
import { lockThread } from '../../../../pipelines/agents/runs/lock-thread.ts';
import { deleteThread } from '../../../../pipelines/agents/threads/delete-thread.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { untilLockWait } from '../../../infra/postgres/lock-waits.ts';
import { logger } from '../../../silent-logger.ts';
import { makeAgentRows } from './agent-rows.ts';

const stores = forSuite(() => freshStores());
const other = forSuite(() => openDatabase({ url: stores.databaseUrl, logger, timeoutMs: 10_000 }));
let rows: Awaited<ReturnType<typeof makeAgentRows>>;
let clock: Date;

const at = (text: string) => new Date(text);
const iso = (text: string) => at(text).toISOString();

beforeEach(async () => {
  rows = await makeAgentRows(stores.database);
  clock = at('2026-04-22T10:00:30Z');
});

/** Creates a run on a new hidden thread, as stateless crons do. */
async function createCronRun(tx: Sql, cron: Cron): Promise<string> {
  const [runId, threadId] = [randomUUID(), randomUUID()];
  await tx.execute('INSERT INTO agents.threads (deployment_id, thread_id, hidden) VALUES ($1, $2, true)', [
    rows.deploymentId,
    threadId,
  ]);
  await tx.execute(
    `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata)
     VALUES ($1, $2, $3, $4, 'echo', '{}', $5)`,
    [rows.deploymentId, threadId, runId, cron.assistant_id, { cron_id: cron.cron_id }],
  );
  return runId;
}

const deps = (changes: Partial<FiringDeps> = {}): FiringDeps => ({
  database: stores.database,
  deploymentId: rows.deploymentId,
  createCronRun,
  logger,
  now: async () => clock.getTime(),
  ...changes,
});

const cron = (changes: Partial<NewCron> = {}) =>
  createCron(
    stores.database,
    rows.deploymentId,
    {
      assistant_id: rows.assistantId,
      thread_id: null,
      schedule: '* * * * *',
      timezone: null,
      end_time: null,
      on_run_completed: 'delete',
      enabled: true,
      payload: {},
      metadata: {},
      user_id: null,
      ...changes,
    },
    { maxCrons: 10_000, now: async () => clock.getTime() },
  );

const readNextRunDate = async (cronId: string) => {
  const { next_run_date } = await readCron(stores.database, rows.deploymentId, cronId);
  return next_run_date && iso(next_run_date);
};
const runsOf = async (cronId: string) => {
  const found = await stores.database.query<{ run_id: string }>(
    `SELECT run_id FROM agents.runs WHERE deployment_id = $1 AND metadata ->> 'cron_id' = $2`,
    [rows.deploymentId, cronId],
  );
  return found.length;
};
const readFirings = async (cronId: string) => {
  const found = await stores.database.query<{ due_at: string; run_id: string | null }>(
    'SELECT due_at, run_id FROM agents.cron_firings WHERE deployment_id = $1 AND cron_id = $2 ORDER BY due_at',
    [rows.deploymentId, cronId],
  );
  return found.map(({ due_at, run_id }) => [iso(due_at), run_id !== null]);
};

describe('fireCrons', () => {
  it('creates a run at each time, and none in between', async () => {
    const { cron_id } = await cron();
    const found: [number, string | null][] = [];
    for (const time of ['10:00:59', '10:01:00', '10:01:00', '10:01:59', '10:02:10']) {
      clock = at(`2026-04-22T${time}Z`);
      await fireCrons(deps());
      found.push([await runsOf(cron_id), await readNextRunDate(cron_id)]);
    }
    expect(found).toEqual([
      [0, iso('2026-04-22T10:01Z')],
      [1, iso('2026-04-22T10:02Z')],
      [1, iso('2026-04-22T10:02Z')],
      [1, iso('2026-04-22T10:02Z')],
      [2, iso('2026-04-22T10:03Z')],
    ]);
  });

  it('creates one run per time, however many processes fire concurrently', async () => {
    const crons = await Promise.all(Array.from({ length: 20 }, () => cron()));
    clock = at('2026-04-22T10:01:05Z');
    const fired = await Promise.all(
      [deps(), deps({ database: other }), deps(), deps({ database: other })].map(fireCrons),
    );
    expect(fired.reduce((sum, some) => sum + some)).toBe(20);
    expect(await Promise.all(crons.map(({ cron_id }) => runsOf(cron_id)))).toEqual(crons.map(() => 1));
  });

  it('fires the latest time missed during downtime, and no earlier one', async () => {
    const { cron_id } = await cron({ schedule: '0 9 * * *', timezone: 'America/New_York' });
    clock = at('2026-04-26T12:59:59Z');
    await fireCrons(deps());
    expect(await readFirings(cron_id)).toEqual([[iso('2026-04-25T13:00Z'), true]]);
    expect(await readNextRunDate(cron_id)).toBe(iso('2026-04-26T13:00Z'));
  });

  it.each([
    ['between two times', '2026-04-22T10:02:30Z', '2026-04-22T10:02:00Z'],
    ['at a time, inclusive', '2026-04-22T10:02:00Z', '2026-04-22T10:02:00Z'],
  ])('stops at an end_time %s', async (_, end, last) => {
    const { cron_id } = await cron({ end_time: end });
    clock = at('2026-04-22T10:09:00Z');
    await fireCrons(deps());
    await fireCrons(deps());
    expect([await readFirings(cron_id), await readNextRunDate(cron_id)]).toEqual([[[iso(last), true]], null]);
  });

  it('leaves a cron due if the process dies while it fires', async () => {
    const { cron_id } = await cron();
    clock = at('2026-04-22T10:01:00Z');
    const createRunAndDisconnect = async (tx: Sql, due: Cron) => {
      const run = await createCronRun(tx, due);
      // This is how the death of a process appears to Postgres: the connection closes with an open transaction.
      await other.query('SELECT pg_terminate_backend($1)', [
        (await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid'))[0]?.pid,
      ]);
      return run;
    };
    expect(await fireCrons(deps({ createCronRun: createRunAndDisconnect }))).toBe(0);
    expect([await runsOf(cron_id), await readFirings(cron_id)]).toEqual([0, []]);
    expect(await fireCrons(deps())).toBe(1);
    expect([await runsOf(cron_id), await readNextRunDate(cron_id)]).toEqual([1, iso('2026-04-22T10:02Z')]);
  });

  it('skips a time whose run is refused permanently, and retries one that failed on a store error', async () => {
    const [busy, unlucky, fine] = await Promise.all([cron(), cron(), cron()]);
    clock = at('2026-04-22T10:01:00Z');
    const refuses = async (tx: Sql, due: Cron) => {
      const run = await createCronRun(tx, due);
      if (due.cron_id === busy.cron_id) throw runlakeError('THREAD_BUSY', { thread: 'x' });
      if (due.cron_id === unlucky.cron_id) throw runlakeError('DATABASE_UNAVAILABLE');
      return run;
    };
    expect(await fireCrons(deps({ createCronRun: refuses }))).toBe(1);
    expect(await readFirings(busy.cron_id)).toEqual([[iso('2026-04-22T10:01Z'), false]]);
    expect(await readNextRunDate(busy.cron_id)).toBe(iso('2026-04-22T10:02Z'));
    expect(await readNextRunDate(unlucky.cron_id)).toBe(iso('2026-04-22T10:01Z'));
    expect(await fireCrons(deps())).toBe(1);
    expect(await Promise.all([busy, unlucky, fine].map(({ cron_id }) => runsOf(cron_id)))).toEqual([0, 1, 1]);
  });

  it.each<[string, { schedule?: string; timezone?: string }]>([
    ['schedule', { schedule: '0 10 L-3 * *' }],
    ['time zone', { timezone: 'Europe/Atlantis' }],
  ])('disables a cron whose stored %s is no longer valid', async (_, stored) => {
    const [invalid, fine] = await Promise.all([cron(), cron()]);
    await stores.database.execute(
      'UPDATE agents.crons SET schedule = coalesce($3, schedule), timezone = $4 WHERE deployment_id = $1 AND cron_id = $2',
      [rows.deploymentId, invalid.cron_id, stored.schedule ?? null, stored.timezone ?? null],
    );
    clock = at('2026-04-22T10:01:05Z');
    expect(await fireCrons(deps())).toBe(1);
    const read = (id: string) => readCron(stores.database, rows.deploymentId, id);
    expect(await read(invalid.cron_id)).toMatchObject({ ...stored, enabled: false, next_run_date: null });
    expect([await runsOf(fine.cron_id), await runsOf(invalid.cron_id), await getMsToNextCron(deps())]).toEqual([
      ...[1, 0, 55_000],
    ]);
    const enable = updateCron(stores.database, rows.deploymentId, invalid.cron_id, { enabled: true });
    await expect(enable).rejects.toMatchObject({
      code: expect.stringMatching(/^CRON_(?:SCHEDULE_INVALID|TIMEZONE_UNKNOWN)$/),
    });
  });

  it('does not disable a cron whose schedule was corrected meanwhile', async () => {
    const due = await cron();
    await disableCron(stores.database, rows.deploymentId, { ...due, schedule: '0 10 L-3 * *' });
    expect(await readCron(stores.database, rows.deploymentId, due.cron_id)).toMatchObject({ enabled: true });
  });

  it('lets the thread of a cron that fires be deleted', async () => {
    const { cron_id } = await cron({ thread_id: rows.threadId, on_run_completed: null });
    clock = at('2026-04-22T10:01:05Z');
    let deleting: Promise<void> | undefined;
    const fired = await fireCrons(
      deps({
        createCronRun: async (tx, { thread_id }) => {
          deleting = deleteThread(other, rows.deploymentId, thread_id as string);
          deleting.catch(() => undefined);
          await untilLockWait(stores.database);
          await lockThread(tx, rows.deploymentId, thread_id as string);
          return randomUUID();
        },
      }),
    );
    await deleting;
    expect(fired).toBe(1);
    await expect(readCron(stores.database, rows.deploymentId, cron_id)).rejects.toMatchObject({
      code: 'CRON_NOT_FOUND',
    });
  });

  it('does not fire twice for one time when the next run date is moved back to it', async () => {
    const { cron_id } = await cron();
    clock = at('2026-04-22T10:01:05Z');
    await fireCrons(deps());
    // Simulates that the clock of Postgres is set back.
    const behind = async () => at('2026-04-22T10:00:50Z').getTime();
    await updateCron(stores.database, rows.deploymentId, cron_id, { schedule: '*/1 * * * *' }, behind);
    expect(await readNextRunDate(cron_id)).toBe(iso('2026-04-22T10:01Z'));
    await fireCrons(deps());
    expect([await runsOf(cron_id), await readNextRunDate(cron_id)]).toEqual([1, iso('2026-04-22T10:02Z')]);
  });

  it('does not fire a disabled cron, nor the missed times after it is enabled', async () => {
    const { cron_id } = await cron({ enabled: false });
    clock = at('2026-04-22T10:05:30Z');
    expect([await fireCrons(deps()), await getMsToNextCron(deps())]).toEqual([0, undefined]);
    await updateCron(stores.database, rows.deploymentId, cron_id, { enabled: true }, async () => clock.getTime());
    expect([await fireCrons(deps()), await getMsToNextCron(deps())]).toEqual([0, 30_000]);
  });

  it('fires in the background, and at once after wake', async () => {
    const withDatabaseClock = deps({ now: readDatabaseClock });
    const crons = startCrons(withDatabaseClock);
    onTestFinished(() => crons.stop());
    const { cron_id } = await cron();
    // The same state as if it had been created a while ago.
    await stores.database.execute(
      "UPDATE agents.crons SET next_run_date = now() - interval '5 minutes' WHERE cron_id = $1",
      [cron_id],
    );
    crons.wake();
    await expect.poll(() => runsOf(cron_id), { timeout: 5_000 }).toBe(1);
  });

  it.each([
    ['behind', -1],
    ['ahead', 1],
  ])('uses the clock of Postgres if the clock of the process is %s', async (_, days) => {
    const withDatabaseClock = deps({ now: readDatabaseClock });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + days * 86_400_000 });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const [due, later] = await Promise.all([cron(), cron()]);
    const move = (cronId: string, hours: number) =>
      stores.database.execute(
        "UPDATE agents.crons SET next_run_date = now() + $2 * interval '1 hour' WHERE cron_id = $1",
        [cronId, hours],
      );
    await move(due.cron_id, -1);
    await move(later.cron_id, 1);
    expect(await fireCrons(withDatabaseClock)).toBe(1);
    expect([await runsOf(due.cron_id), await runsOf(later.cron_id)]).toEqual([1, 0]);
    const next = await Promise.all([
      createCron(stores.database, rows.deploymentId, due, { maxCrons: 10_000 }),
      updateCron(stores.database, rows.deploymentId, due.cron_id, { schedule: '*/1 * * * *' }),
    ]);
    for (const { next_run_date } of next) {
      const [row] = await stores.database.query<{ seconds: number }>(
        'SELECT extract(epoch FROM $1::timestamptz - now())::float8 AS seconds',
        [next_run_date],
      );
      expect(Math.abs(row?.seconds ?? Number.NaN)).toBeLessThan(70);
    }
  });
});
