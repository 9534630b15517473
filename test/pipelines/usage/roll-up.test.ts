import { afterEach, beforeEach, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { hasDirtyHours, type RollUpOptions, startRollUp } from '../../../pipelines/usage/rollup.ts';
import type { RollUp } from '../../../pipelines/usage/rollup-loop.ts';
import { wrapCommands } from '../../engines/on-stored-table.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { emptyUsageTables, hourMicros, ingestRuns, type RunRow, readTraceCount, runRow } from './trace-rows.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);
const database = createProxyTo(() => stores.database);
let rollUp: RollUp | undefined;

beforeEach(() => emptyUsageTables(stores));
afterEach(async () => {
  await rollUp?.stop();
  rollUp = undefined;
});

function start(options: Partial<RollUpOptions>): RollUp {
  rollUp = startRollUp({ database, clickhouse, intervalMs: 60_000, logger, ...options });
  return rollUp;
}
const ingest = (...rows: RunRow[]) => ingestRuns(stores, rows);
const untilCounted = (traces: number, timeout: number) =>
  expect.poll(() => readTraceCount(clickhouse), { timeout, interval: 20 }).toBe(traces);

it('counts the dirty hours that exist at startup', async () => {
  await ingest(runRow({}));
  start({});
  await untilCounted(1, 20_000);
});

it('shows new traces soon after a wake-up', async () => {
  const { wake, runNow } = start({});
  await runNow();
  for (let round = 1; round <= 3; round++) {
    await ingest(runRow({}));
    wake();
    await untilCounted(round, 20_000);
  }
});

it('polls for hours that another process marked dirty', async () => {
  const { runNow } = start({ intervalMs: 50 });
  await runNow();
  await ingest(runRow({}));
  await untilCounted(1, 20_000);
});

it('coalesces many wake-ups into few roll-up runs', async () => {
  let counts = 0;
  const { wake, runNow } = start({
    clickhouse: wrapCommands(clickhouse, (command, run) => {
      counts += Number(command.name === 'count-usage-hours');
      return run();
    }),
  });
  await runNow();
  const startedMs = performance.now();
  for (let round = 0; round < 30; round++) {
    await ingest(runRow({}));
    wake();
  }
  await untilCounted(30, 20_000);
  expect(counts).toBeLessThanOrEqual((performance.now() - startedMs) / 400 + 2);
});

it('sends one Postgres query an interval and no ClickHouse query while idle', async () => {
  const statements: string[] = [];
  const { runNow } = start({
    intervalMs: 30,
    database: {
      ...database,
      query: (sql, params) => {
        statements.push(sql);
        return database.query(sql, params);
      },
    },
    clickhouse: wrapCommands(clickhouse, (command, run) => {
      statements.push(command.sql);
      return run();
    }),
  });
  await runNow();
  await expect.poll(() => statements.length, { timeout: 20_000 }).toBeGreaterThan(5);
  expect(new Set(statements)).toEqual(new Set(['SELECT 1 FROM usage_dirty_hours ORDER BY sequence LIMIT 1']));
  const plan = await database.transaction(async (transaction) => {
    await transaction.query('SET LOCAL enable_seqscan = off');
    return transaction.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${statements[0]}`);
  });
  expect(plan.map((line) => line['QUERY PLAN']).join('\n')).toContain('usage_dirty_hours_pkey');
});

it('recovers from failures of either store, with smaller roll-up runs meanwhile', async () => {
  const hoursAsked: number[] = [];
  await ingest(...Array.from({ length: 8 }, (_, index) => runRow({ traceMicros: (450_000 + index) * hourMicros })));
  start({
    limits: { hours: 8 },
    clickhouse: wrapCommands(clickhouse, async ({ name, externalTable }, run) => {
      if (name === 'count-usage-hours') {
        hoursAsked.push(externalTable!.rows.length);
        if (hoursAsked.length === 1) throw runlakeError('CLICKHOUSE_UNAVAILABLE');
        if (hoursAsked.length <= 3) throw runlakeError('DATABASE_UNAVAILABLE');
      }
      await run();
    }),
  });
  await untilCounted(8, 20_000);
  expect(hoursAsked).toEqual([8, 2, 1, 1, 7]);
});

it('continues until nothing is left when each roll-up run is limited', async () => {
  await ingest(...Array.from({ length: 7 }, (_, index) => runRow({ traceMicros: (450_000 + index) * hourMicros })));
  start({ limits: { hours: 2 } });
  await untilCounted(7, 20_000);
  // When a roll-up run commits that has counted the last dirty hours, these hours are deleted.
  await expect.poll(() => hasDirtyHours(database), { timeout: 20_000, interval: 20 }).toBe(false);
});

it('never executes two roll-up runs at a time, and a requested run counts what was marked dirty before it', async () => {
  let running = 0;
  let max = 0;
  const { wake, runNow } = start({
    clickhouse: wrapCommands(clickhouse, async (_command, run) => {
      max = Math.max(max, ++running);
      await run().finally(() => running--);
    }),
  });
  for (let round = 1; round <= 5; round++) {
    await ingest(runRow({}));
    wake();
    await Promise.all([runNow(), runNow()]);
    expect(await readTraceCount(clickhouse)).toBe(round);
  }
  expect(max).toBe(1);
});

it('finishes the current roll-up run when it is stopped, and starts no other', async () => {
  let reached = () => {};
  let resume = () => {};
  const counting = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const gate = new Promise<void>((resolve) => {
    resume = resolve;
  });
  await ingest(runRow({}));
  const { stop, wake } = start({
    clickhouse: wrapCommands(clickhouse, async (_command, run) => {
      reached();
      await gate;
      await run();
    }),
  });
  await counting;
  let stopped = false;
  const stopping = stop().then(() => {
    stopped = true;
  });
  wake();
  await database.ping();
  expect(stopped).toBe(false);
  resume();
  await stopping;
  expect(await readTraceCount(clickhouse)).toBe(1);
  expect(await hasDirtyHours(database)).toBe(false);
  await ingest(runRow({}));
  wake();
  await stop();
  expect(await hasDirtyHours(database)).toBe(true);
});

it('reports unhealthy after several consecutive failed roll-up runs, until one succeeds', async () => {
  await ingest(runRow({}));
  let broken = true;
  const failing = wrapCommands(clickhouse, (_command, run) =>
    broken ? Promise.reject(runlakeError('CLICKHOUSE_UNAVAILABLE', {})) : run(),
  );
  const { check } = start({ clickhouse: failing });
  await check();
  const state = () =>
    check().then(
      () => 'well',
      (error) => error.code,
    );
  await expect.poll(state, { timeout: 20_000, interval: 20 }).toBe('CLICKHOUSE_UNAVAILABLE');
  broken = false;
  await expect.poll(state, { timeout: 10_000, interval: 20 }).toBe('well');
});
