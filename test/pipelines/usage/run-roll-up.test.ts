import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { runOnEachShard } from '../../../infra/clickhouse/layout.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { runFactRollUp } from '../../../pipelines/runs/stats/count-facts.ts';
import { markHoursDirty } from '../../../pipelines/usage/mark-hours-dirty.ts';
import { hasDirtyHours, runRollUp } from '../../../pipelines/usage/rollup.ts';
import { countHours, sumDays } from '../../../pipelines/usage/rollup-query.ts';
import { childProcessOptions } from '../../engines/child-of-suite.ts';
import { queryEveryServer, runOnStoredTable, wrapCommands } from '../../engines/on-stored-table.ts';
import { freshStores, getClusterVariable } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { deriveUuid } from '../runs/run-events.ts';
import {
  emptyUsageTables,
  hourMicros,
  ingestRuns,
  insertRuns,
  type RunRow,
  readCountsBy,
  readTraceCount,
  runRow,
  toDirtyHours,
} from './trace-rows.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);
const database = createProxyTo(() => stores.database);

beforeEach(() => emptyUsageTables(stores));

const ingest = (rows: readonly RunRow[]) => ingestRuns(stores, rows);
const rollUp = (limits = {}) => runRollUp({ database, clickhouse }, limits);
const hour = (row: RunRow) => Math.floor(row.traceMicros / hourMicros) * 3_600;

describe('a roll-up run', () => {
  it('replaces its former counts also after the sequence of Postgres was restored from a backup', async () => {
    const row = runRow({});
    await ingest([row]);
    for (let times = 0; times < 3; times += 1) {
      await markHoursDirty(database, toDirtyHours([row]));
      await rollUp();
    }
    await database.query(`SELECT setval('usage_roll_up', 1)`);
    await ingest([runRow({})]);
    expect(await rollUp()).toMatchObject({ outcome: 'counted' });
    expect(await readTraceCount(clickhouse)).toBe(2);
  });

  it('counts a dirty hour in every dimension', async () => {
    const rows = [
      runRow({}),
      runRow({ userId: deriveUuid('other user') }),
      runRow({ projectId: deriveUuid('other project') }),
    ];
    await ingest(rows);
    expect(await rollUp()).toEqual({ outcome: 'counted', hours: 1, more: false });
    const at = hour(rows[0]!);
    expect(await readCountsBy(clickhouse, 'workspace')).toEqual({ [`${at} ${deriveUuid('tenant')}`]: 3 });
    expect(await readCountsBy(clickhouse, 'project')).toEqual({
      [`${at} ${deriveUuid('project')}`]: 2,
      [`${at} ${deriveUuid('other project')}`]: 1,
    });
    expect(await readCountsBy(clickhouse, 'user')).toEqual({
      [`${at} ${deriveUuid('user')}`]: 2,
      [`${at} ${deriveUuid('other user')}`]: 1,
    });
    expect(await readCountsBy(clickhouse, 'api_key')).toEqual({ [`${at} ${deriveUuid('key')}`]: 3 });
    expect(await hasDirtyHours(database)).toBe(false);
  });

  it('does nothing without dirty hours', async () => {
    await insertRuns(clickhouse, [runRow({})]);
    expect(await rollUp()).toEqual({ outcome: 'idle', hours: 0, more: false });
    expect(await readTraceCount(clickhouse)).toBe(0);
  });

  it('counts a trace once, however often and in however many chunks it arrives', async () => {
    const root = runRow({});
    const child = runRow({ traceId: root.traceId });
    await ingest([child]);
    await rollUp();
    expect(await readTraceCount(clickhouse)).toBe(1);
    await ingest([root, child]);
    await ingest([root, child]);
    await ingest([child, root, root]);
    await rollUp();
    await runOnStoredTable(clickhouse, 'traces', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    await ingest([root]);
    await rollUp();
    for (const dimension of ['workspace', 'project', 'user', 'api_key']) {
      expect(await readTraceCount(clickhouse, dimension)).toBe(1);
    }
  });

  it('attributes a trace to the sender of the run that was accepted first, whatever the order of arrival', async () => {
    const second = runRow({ userId: deriveUuid('second'), acceptedMicros: 2_000_000 });
    const first = runRow({ traceId: second.traceId, userId: deriveUuid('first'), acceptedMicros: 1_000_000 });
    const third = runRow({ traceId: second.traceId, userId: deriveUuid('third'), acceptedMicros: 3_000_000 });
    const ingestAndReadUsers = async (row: RunRow) => {
      await ingest([row]);
      await rollUp();
      return readCountsBy(clickhouse, 'user');
    };
    expect(await ingestAndReadUsers(second)).toEqual({ [`${hour(second)} ${deriveUuid('second')}`]: 1 });
    expect(await ingestAndReadUsers(first)).toEqual({ [`${hour(second)} ${deriveUuid('first')}`]: 1 });
    expect(await ingestAndReadUsers(third)).toEqual({ [`${hour(second)} ${deriveUuid('first')}`]: 1 });
    expect(await readTraceCount(clickhouse)).toBe(1);
  });

  it('breaks ties between runs accepted at the same moment by run id, whatever the order', async () => {
    const chosen = new Set<string>();
    const runIds = ['00000000-0000-4000-8000-000000000002', '11111111-0000-4000-8000-000000000001'];
    for (const [index, order] of [runIds, [...runIds].reverse()].entries()) {
      const traceId = deriveUuid('tie', index);
      for (const runId of order) await ingest([runRow({ traceId, runId, userId: runId })]);
      await rollUp();
      chosen.add(Object.keys(await readCountsBy(clickhouse, 'user')).join());
      for (const table of ['traces', 'usage_hourly', 'usage_daily']) {
        await runOnStoredTable(clickhouse, table, (stored) => `TRUNCATE TABLE ${stored}`);
      }
    }
    expect(chosen.size).toBe(1);
  });

  it('counts late traces of old hours, and leaves other hours and workspaces unchanged', async () => {
    const old = Date.UTC(2023, 5, 1) * 1_000;
    const [recent, elsewhere] = [runRow({}), runRow({ tenantId: deriveUuid('elsewhere'), traceMicros: old })];
    await ingest([recent, elsewhere]);
    await rollUp();
    await ingest([runRow({ traceMicros: old + 5 }), runRow({ traceMicros: old + 6 })]);
    expect(await rollUp()).toMatchObject({ hours: 1 });
    expect(await readCountsBy(clickhouse, 'workspace')).toEqual({
      [`${hour(recent)} ${deriveUuid('tenant')}`]: 1,
      [`${hour(elsewhere)} ${deriveUuid('elsewhere')}`]: 1,
      [`${hour(elsewhere)} ${deriveUuid('tenant')}`]: 2,
    });
  });

  it('counts thousands of hours at once', async () => {
    const rows = Array.from({ length: 2_500 }, (_, index) => runRow({ traceMicros: (450_000 + index) * hourMicros }));
    await ingest(rows);
    // Other groups are left to other processes, or to the next run.
    expect(await rollUp()).toEqual({ outcome: 'counted', hours: 2_500, more: true });
    expect(await readTraceCount(clickhouse)).toBe(2_500);
    expect(Object.keys(await readCountsBy(clickhouse, 'api_key'))).toHaveLength(2_500);
  });

  it('counts hours of more months than ClickHouse accepts in one insert', async () => {
    // The rows are inserted directly into `traces`, because the weekly partitions of `runs` would make this slow.
    await clickhouse.command({
      name: 'test',
      sql: `INSERT INTO traces SELECT {tenant:UUID}, addMonths(toDateTime('1990-01-01 00:00:00', 'UTC'), number),
        generateUUIDv4(), tuple(now64(6), generateUUIDv4(), {tenant:UUID}, {tenant:UUID}, {tenant:UUID}) FROM numbers(120)`,
      params: { tenant: deriveUuid('tenant') },
      settings: { max_partitions_per_insert_block: '0' },
    });
    const hours = Array.from({ length: 120 }, (_, month) => Date.UTC(1990, month, 1) / 1_000);
    await markHoursDirty(
      database,
      hours.map((hourSeconds) => ({ tenantId: deriveUuid('tenant'), hourSeconds })),
    );
    expect(await rollUp()).toMatchObject({ hours: 120 });
    expect(await readTraceCount(clickhouse)).toBe(120);
  });

  it('counts at most the limit, oldest dirty hours first, and reports that more is left', async () => {
    const rows = Array.from({ length: 5 }, (_, index) => runRow({ traceMicros: (450_001 + index) * hourMicros }));
    for (const row of rows) await ingest([row, row]);
    await ingest([rows[4]!]);
    expect(await rollUp({ hours: 2 })).toEqual({ outcome: 'counted', hours: 2, more: true });
    expect(Object.keys(await readCountsBy(clickhouse, 'workspace')).map((key) => Number(key.split(' ')[0]))).toEqual([
      450_001 * 3_600,
      450_002 * 3_600,
    ]);
    expect(await rollUp({ dirtyHours: 1 })).toEqual({ outcome: 'counted', hours: 1, more: true });
    expect(await rollUp({ hours: 2 })).toMatchObject({ hours: 2, more: true });
    expect(await rollUp()).toEqual({ outcome: 'idle', hours: 0, more: false });
    expect(await readTraceCount(clickhouse)).toBe(5);
  });
});

describe('a roll-up run that crashes', () => {
  const died = new TypeError('died here');
  const around = (name: string, act: (run: () => Promise<void>) => Promise<void>): ClickHouse =>
    wrapCommands(clickhouse, (command, run) => (command.name === name ? act(run) : run()));
  /**
   * Returns the database; its sessions fail before the statement that contains `text`, or before the commit if `text`
   * is COMMIT.
   */
  const createDyingDatabase = (text: string): Database => ({
    ...database,
    session: (work) =>
      database.session((session) => {
        const query: Database['query'] = async (sql, params) => {
          if (sql.includes(text)) throw died;
          return session.query(sql, params);
        };
        const transaction: Database['transaction'] = (change) =>
          session.transaction(async (open) => {
            const result = await change({ ...open, query });
            if (text === 'COMMIT') throw died;
            return result;
          });
        return work({ ...session, query, transaction });
      }),
  });

  const deaths: Array<[string, () => { clickhouse: ClickHouse; database: Database }]> = [
    ['before the roll-up run number', () => ({ clickhouse, database: createDyingDatabase('nextval') })],
    ['before the count', () => ({ clickhouse: around('count-usage-hours', () => Promise.reject(died)), database })],
    [
      'after the count',
      () => ({
        clickhouse: around('count-usage-hours', async (run) => {
          await run();
          throw died;
        }),
        database,
      }),
    ],
    ['before the dirty hours are deleted', () => ({ clickhouse, database: createDyingDatabase('DELETE') })],
    ['before the commit', () => ({ clickhouse, database: createDyingDatabase('COMMIT') })],
  ];
  for (const [when, deps] of deaths) {
    it(`${when} is repaired by the next one`, async () => {
      const late = runRow({ userId: deriveUuid('late'), acceptedMicros: 2_000_000 });
      await ingest([late, runRow({})]);
      await rollUp();
      // This event takes the trace away from the late user; after the crash, the trace must not be counted for both
      // users.
      const early = runRow({ traceId: late.traceId, userId: deriveUuid('early'), acceptedMicros: 1_000_000 });
      await ingest([early, runRow({})]);
      await expect(runRollUp(deps())).rejects.toBe(died);
      expect(await hasDirtyHours(database)).toBe(true);
      expect(await rollUp()).toMatchObject({ outcome: 'counted', hours: 1 });
      expect(await readCountsBy(clickhouse, 'user')).toEqual({
        [`${hour(late)} ${deriveUuid('early')}`]: 1,
        [`${hour(late)} ${deriveUuid('user')}`]: 2,
      });
      expect(await readTraceCount(clickhouse)).toBe(3);
    });
  }

  it('keeps an hour that is marked dirty while it counts', async () => {
    const traceMicros = 5 * hourMicros;
    await ingest([runRow({ traceMicros })]);
    for (const moment of ['before', 'after'] as const) {
      const result = await runRollUp({
        database,
        clickhouse: around('count-usage-hours', async (run) => {
          if (moment === 'after') await run();
          await ingest([runRow({ traceMicros })]);
          if (moment === 'before') await run();
        }),
      });
      expect(result.outcome).toBe('counted');
      expect(await hasDirtyHours(database)).toBe(true);
    }
    await rollUp();
    expect(await readTraceCount(clickhouse)).toBe(3);
  });

  it('supersedes counts that an insert writes after its process died and the next run committed', async () => {
    const row = runRow({ userId: deriveUuid('late'), acceptedMicros: 2_000_000 });
    await ingest([row]);
    await database.query("SELECT setval('usage_roll_up', 2)");
    const taken = runRow({ traceId: row.traceId, userId: deriveUuid('early'), acceptedMicros: 1_000_000 });
    await ingest([taken]);
    await rollUp();
    await runOnStoredTable(clickhouse, 'traces', (stored) => `TRUNCATE TABLE ${stored}`);
    // Restores the rows that the late count had read.
    await insertRuns(clickhouse, [row]);
    await runOnEachShard(clickhouse, (stored, shard) =>
      countHours(toDirtyHours([row]), 1, { traces: stored('traces'), shard }),
    );
    await clickhouse.command(sumDays(toDirtyHours([row]), 1));
    expect(await readCountsBy(clickhouse, 'user')).toEqual({ [`${hour(row)} ${deriveUuid('early')}`]: 1 });
  });

  it('sets an hour to zero that lost all its traces', async () => {
    const row = runRow({});
    await ingest([row]);
    await rollUp();
    await runOnStoredTable(clickhouse, 'traces', (stored) => `TRUNCATE TABLE ${stored}`);
    await markHoursDirty(database, toDirtyHours([row]));
    await rollUp();
    expect(await readCountsBy(clickhouse, 'user')).toEqual({});
  });
});

describe('processes', () => {
  const script = fileURLToPath(new URL('./roll-up-process.fixture.ts', import.meta.url));
  const children = new Set<ChildProcess>();
  afterEach(async () => {
    for (const child of children) child.kill('SIGKILL');
    children.clear();
    // The insert of a killed process continues in ClickHouse and would be counted in the tables of the next test.
    const inserting = `SELECT query_id FROM system.processes WHERE current_database = currentDatabase() AND query_kind = 'Insert'`;
    const noInserts = async () => (await queryEveryServer(clickhouse, inserting)).length === 0;
    await until('inserts to end', noInserts, 60_000);
  }, 90_000);
  function start(mode: string): ChildProcess {
    const child = spawn(process.execPath, [...childProcessOptions, script, mode], {
      env: {
        ...process.env,
        ...getClusterVariable(stores),
        TEST_CLICKHOUSE_URL: stores.clickhouseUrl,
        TEST_DATABASE_URL: stores.databaseUrl,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.add(child);
    return child;
  }
  const untilReady = (child: ChildProcess) => once(child.stdout!, 'data');

  for (const mode of ['hang-before-count', 'hang-after-count', 'hang-within-count']) {
    it(`recover after kill -9 in mode ${mode}`, async () => {
      const rows = [runRow({}), runRow({ projectId: deriveUuid('other project') })];
      await ingest(rows);
      const child = start(mode);
      await untilReady(child);
      expect(await rollUp()).toMatchObject({ outcome: 'busy' });
      child.kill('SIGKILL');
      await once(child, 'exit');
      await expect.poll(async () => (await rollUp()).outcome, { timeout: 60_000 }).toBe('counted');
      expect(await hasDirtyHours(database)).toBe(false);
      for (const dimension of ['workspace', 'project', 'user', 'api_key']) {
        expect(await readTraceCount(clickhouse, dimension)).toBe(2);
      }
    });
  }

  it('count traces inserted concurrently, each trace once', async () => {
    const loops = [start('loop'), start('loop')];
    await Promise.all(loops.map(untilReady));
    const rows: RunRow[] = [];
    for (let round = 0; round < 20; round++) {
      const batch = Array.from({ length: 10 }, (_, index) =>
        runRow({ traceMicros: (450_000 + (index % 3)) * hourMicros, userId: deriveUuid('user', round % 4) }),
      );
      rows.push(...batch);
      // Each batch is inserted together with a repeat of an older one.
      await ingest([...batch, ...rows.slice(round * 5, round * 5 + 5)]);
    }
    await expect.poll(() => hasDirtyHours(database), { timeout: 60_000 }).toBe(false);
    for (const dimension of ['workspace', 'project', 'user', 'api_key']) {
      expect(await readTraceCount(clickhouse, dimension)).toBe(rows.length);
    }
    for (const child of loops) {
      child.kill('SIGTERM');
      expect(await once(child, 'exit')).toEqual([0, null]);
    }
  });
});

describe('a roll-up run that lists facts', () => {
  it('postpones an hour that fails alone, so that the others are listed', async () => {
    const [large, other] = [deriveUuid('large tenant'), deriveUuid('other tenant')];
    await database.query('DELETE FROM fact_dirty_hours');
    await database.query(
      `INSERT INTO fact_dirty_hours (tenant_id, hour, marked_at)
       VALUES ($1, '2026-01-01T00:00Z', now() - interval '2 hours'), ($2, '2026-01-01T00:00Z', now() - interval '1 hour')`,
      [large, other],
    );
    const short = wrapCommands(clickhouse, async ({ externalTable }, run) => {
      if (!externalTable?.rows.some(([tenantId]) => tenantId === large)) return run();
      // The roll-up of usage counts the hour again meanwhile.
      await database.query('UPDATE fact_dirty_hours SET sequence = DEFAULT WHERE tenant_id = $1', [large]);
      throw new Error('too little memory');
    });
    const list = () => runFactRollUp({ database, clickhouse: short }, { hours: 1, minAgeSeconds: 0 });
    await expect(list()).rejects.toThrow('too little memory');
    expect(await list()).toMatchObject({ outcome: 'counted', hours: 1 });
    expect(await database.query('SELECT tenant_id FROM fact_dirty_hours')).toEqual([{ tenant_id: large }]);
    await database.query('DELETE FROM fact_dirty_hours');
  });
});
