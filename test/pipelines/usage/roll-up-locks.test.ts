/** Locks of roll-up runs: which hours several processes count at the same time. */

import { beforeEach, describe, expect, it } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { hasDirtyHours, runRollUp } from '../../../pipelines/usage/rollup.ts';
import { wrapCommands } from '../../engines/on-stored-table.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { emptyUsageTables, ingestRuns, type RunRow, readTraceCount, runRow } from './trace-rows.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);
const database = createProxyTo(() => stores.database);

beforeEach(() => emptyUsageTables(stores));

const ingest = (rows: readonly RunRow[]) => ingestRuns(stores, rows);
const rollUp = (limits = {}) => runRollUp({ database, clickhouse }, limits);
const around = (name: string, act: (run: () => Promise<void>) => Promise<void>): ClickHouse =>
  wrapCommands(clickhouse, (command, run) => (command.name === name ? act(run) : run()));
const workspaceOf = (lastDigit: number) => `00000000-0000-4000-8000-00000000000${lastDigit}`;

describe('a roll-up run', () => {
  it('has no open transaction while ClickHouse counts, and holds no lock afterwards', async () => {
    const sessions = () =>
      database.query<{ state: string; locks: number }>(
        `SELECT state, (SELECT count(*) FROM pg_locks WHERE pg_locks.pid = activity.pid) AS locks
         FROM pg_stat_activity AS activity
         WHERE datname = current_database() AND application_name = 'runlake' AND pid != pg_backend_pid()`,
      );
    const seen: { state: string; locks: number }[][] = [];
    const spied = wrapCommands(clickhouse, async (_command, run) => {
      seen.push(await sessions());
      await run();
    });
    await ingest([runRow({})]);
    expect(await runRollUp({ database, clickhouse: spied })).toMatchObject({ outcome: 'counted' });
    expect(seen.length).toBeGreaterThanOrEqual(2);
    for (const during of seen) {
      expect(during.map(({ state }) => state)).not.toContain('idle in transaction');
      // The lock of the group, and no lock on a table.
      expect(during.reduce((sum, { locks }) => sum + locks, 0)).toBe(1);
    }
    const after = await sessions();
    expect(after.reduce((sum, { locks }) => sum + locks, 0)).toBe(0);
  });

  it('changes nothing in Postgres if its connection broke while it counted', async () => {
    await ingest([runRow({})]);
    const breaking = around('count-usage-hours', async (run) => {
      await run();
      await database.query(
        `SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND classid = 721550843
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      );
    });
    await expect(runRollUp({ database, clickhouse: breaking })).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    expect(await hasDirtyHours(database)).toBe(true);
    expect(await rollUp()).toEqual({ outcome: 'counted', hours: 1, more: false });
    expect(await readTraceCount(clickhouse)).toBe(1);
  });

  it('leaves other groups to other processes if one group has many hours', async () => {
    await database.query(
      `INSERT INTO usage_dirty_hours (tenant_id, hour)
       SELECT $1, to_timestamp(3600 * n) FROM generate_series(1, 1001) AS n`,
      [workspaceOf(1)],
    );
    await ingest([runRow({ tenantId: workspaceOf(2) })]);
    const outer = await runRollUp({
      database,
      clickhouse: around('count-usage-hours', async (run) => {
        expect(await rollUp()).toEqual({ outcome: 'counted', hours: 1, more: false });
        await run();
      }),
    });
    expect(outer).toEqual({ outcome: 'counted', hours: 1_001, more: true });
    expect(await hasDirtyHours(database)).toBe(false);
  });

  it('leaves a group to the run that has locked it', async () => {
    await ingest([runRow({})]);
    const outer = await runRollUp({
      database,
      clickhouse: around('count-usage-hours', async (run) => {
        expect(await rollUp()).toEqual({ outcome: 'busy', hours: 0, more: false });
        await run();
      }),
    });
    expect(outer.outcome).toBe('counted');
    expect(await readTraceCount(clickhouse)).toBe(1);
  });

  it('counts the workspaces of other groups meanwhile', async () => {
    await ingest([runRow({ tenantId: workspaceOf(1) })]);
    await runRollUp({
      database,
      clickhouse: around('count-usage-hours', async (run) => {
        await ingest([1, 2, 3].map((digit) => runRow({ tenantId: workspaceOf(digit) })));
        expect(await rollUp()).toEqual({ outcome: 'counted', hours: 2, more: false });
        await run();
      }),
    });
    expect(await rollUp()).toEqual({ outcome: 'counted', hours: 1, more: false });
    const [total] = await clickhouse.query<{ traces: number }>({
      name: 'test',
      sql: `SELECT sum(arraySum(traces)) AS traces FROM usage_hourly FINAL WHERE dimension = 'workspace'`,
    });
    expect(Number(total?.traces)).toBe(4);
  });
});
