import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import type { Query, Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { noteHours } from '../../../pipelines/usage/note-hours.ts';
import { type RollUp, type RollUpOptions, startRollUp } from '../../../pipelines/usage/roll-up.ts';
import { hasNotes } from '../../../pipelines/usage/roll-up-pass.ts';
import { freshStores } from '../../engines/stores.ts';
import { hourMicros, hoursOf, insertRuns, type RunRow, runRow, tracesCounted } from './trace-rows.ts';

const logger = createLogger('silent', 'test');
let stores: Awaited<ReturnType<typeof freshStores>>;
let warehouse: Warehouse;
let database: Database;
let rollUp: RollUp | undefined;

beforeAll(async () => {
  stores = await freshStores();
  ({ warehouse, database } = stores);
});
afterAll(() => stores?.close());
beforeEach(async () => {
  for (const table of ['runs', 'traces', 'usage_hourly', 'usage_daily']) {
    await warehouse.command({ name: 'test', sql: `TRUNCATE TABLE ${table}` });
  }
  await database.query('DELETE FROM usage_notes');
});
afterEach(async () => {
  await rollUp?.stop();
  rollUp = undefined;
});

function start(options: Partial<RollUpOptions>): RollUp {
  rollUp = startRollUp({ database, warehouse, intervalMs: 60_000, logger, ...options });
  return rollUp;
}
async function ingest(...rows: RunRow[]): Promise<void> {
  await insertRuns(warehouse, rows);
  await noteHours(database, hoursOf(rows));
}
const untilCounted = (traces: number, timeout: number) =>
  expect.poll(() => tracesCounted(warehouse), { timeout, interval: 20 }).toBe(traces);

it('counts what it finds at the start', async () => {
  await ingest(runRow({}));
  start({});
  await untilCounted(1, 20_000);
});

it('shows new traces soon after it was woken', async () => {
  const { wake, passNow } = start({});
  await passNow();
  for (let round = 1; round <= 3; round++) {
    await ingest(runRow({}));
    wake();
    await untilCounted(round, 20_000);
  }
});

it('finds what another process noted, by itself', async () => {
  const { passNow } = start({ intervalMs: 50 });
  await passNow();
  await ingest(runRow({}));
  await untilCounted(1, 20_000);
});

it('makes few passes out of many wakes', async () => {
  let counts = 0;
  const { wake, passNow } = start({
    warehouse: {
      ...warehouse,
      command: (query: Query) => {
        counts += Number(query.name === 'count-usage-hours');
        return warehouse.command(query);
      },
    },
  });
  await passNow();
  const startedMs = performance.now();
  for (let round = 0; round < 30; round++) {
    await ingest(runRow({}));
    wake();
  }
  await untilCounted(30, 20_000);
  expect(counts).toBeLessThanOrEqual((performance.now() - startedMs) / 400 + 2);
});

it('asks one question an interval while nothing happens, and ClickHouse none', async () => {
  const statements: string[] = [];
  const { passNow } = start({
    intervalMs: 30,
    database: {
      ...database,
      query: (sql, params) => {
        statements.push(sql);
        return database.query(sql, params);
      },
    },
    warehouse: {
      ...warehouse,
      command: (query) => {
        statements.push(query.sql);
        return warehouse.command(query);
      },
    },
  });
  await passNow();
  await expect.poll(() => statements.length, { timeout: 20_000 }).toBeGreaterThan(5);
  expect(new Set(statements)).toEqual(new Set(['SELECT 1 FROM usage_notes ORDER BY sequence LIMIT 1']));
  const plan = await database.transaction(async (transaction) => {
    await transaction.query('SET LOCAL enable_seqscan = off');
    return transaction.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${statements[0]}`);
  });
  expect(plan.map((line) => line['QUERY PLAN']).join('\n')).toContain('usage_notes_pkey');
});

it('goes on after faults of either store, with smaller passes meanwhile', async () => {
  const hoursAsked: number[] = [];
  await ingest(...Array.from({ length: 8 }, (_, index) => runRow({ traceMicros: (450_000 + index) * hourMicros })));
  start({
    limits: { hours: 8 },
    warehouse: {
      ...warehouse,
      command: (query: Query) => {
        if (query.name !== 'count-usage-hours') return warehouse.command(query);
        hoursAsked.push(query.external!.rows.length);
        if (hoursAsked.length === 1) return Promise.reject(fault('WAREHOUSE_UNAVAILABLE'));
        if (hoursAsked.length <= 3) return Promise.reject(fault('DATABASE_UNAVAILABLE'));
        return warehouse.command(query);
      },
    },
  });
  await untilCounted(8, 20_000);
  expect(hoursAsked).toEqual([8, 2, 1, 1, 7]);
});

it('goes on until nothing is left where a pass has a limit', async () => {
  await ingest(...Array.from({ length: 7 }, (_, index) => runRow({ traceMicros: (450_000 + index) * hourMicros })));
  start({ limits: { hours: 2 } });
  await untilCounted(7, 20_000);
  // The notes go when the pass that counted the last of them is written down.
  await expect.poll(() => hasNotes(database), { timeout: 20_000, interval: 20 }).toBe(false);
});

it('never runs two passes at a time, and a pass on request counts what was noted before it', async () => {
  let running = 0;
  let most = 0;
  const { wake, passNow } = start({
    warehouse: {
      ...warehouse,
      command: async (query) => {
        most = Math.max(most, ++running);
        await warehouse.command(query).finally(() => running--);
      },
    },
  });
  for (let round = 1; round <= 5; round++) {
    await ingest(runRow({}));
    wake();
    await Promise.all([passNow(), passNow()]);
    expect(await tracesCounted(warehouse)).toBe(round);
  }
  expect(most).toBe(1);
});

it('finishes the pass under way when it is stopped, and begins no other', async () => {
  let reached = () => {};
  let goOn = () => {};
  const counting = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const gate = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  await ingest(runRow({}));
  const { stop, wake } = start({
    warehouse: {
      ...warehouse,
      command: async (query) => {
        reached();
        await gate;
        await warehouse.command(query);
      },
    },
  });
  await counting;
  let stopped = false;
  const stopping = stop().then(() => {
    stopped = true;
  });
  wake();
  await database.ping();
  expect(stopped).toBe(false);
  goOn();
  await stopping;
  expect(await tracesCounted(warehouse)).toBe(1);
  expect(await hasNotes(database)).toBe(false);
  await ingest(runRow({}));
  wake();
  await stop();
  expect(await hasNotes(database)).toBe(true);
});

it('says that it fails after several passes in a row, until one passes', async () => {
  await ingest(runRow({}));
  let broken = true;
  const failing: Warehouse = {
    ...warehouse,
    command: (command) => (broken ? Promise.reject(fault('WAREHOUSE_UNAVAILABLE', {})) : warehouse.command(command)),
  };
  const { check } = start({ warehouse: failing });
  await check();
  const state = () =>
    check().then(
      () => 'well',
      (error) => error.code,
    );
  await expect.poll(state, { timeout: 20_000, interval: 20 }).toBe('WAREHOUSE_UNAVAILABLE');
  broken = false;
  await expect.poll(state, { timeout: 10_000, interval: 20 }).toBe('well');
});
