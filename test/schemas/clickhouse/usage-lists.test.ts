import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { migrate } from '../../../infra/migrations/migrate.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { freshStores } from '../../engines/stores.ts';
import { countedBy, uuidOf } from '../../pipelines/usage/trace-rows.ts';

const schemas = fileURLToPath(new URL('../../../schemas/', import.meta.url));
const before = mkdtempSync(join(tmpdir(), 'migrations-'));
afterAll(() => rmSync(before, { recursive: true }));

it('0005 keeps every figure that was counted before it', async () => {
  for (const store of ['postgres', 'clickhouse']) {
    mkdirSync(join(before, store));
    for (const file of readdirSync(join(schemas, store))) {
      if (store === 'postgres' || file < '0005') copyFileSync(join(schemas, store, file), join(before, store, file));
    }
  }
  const stores = await freshStores({ migrated: false });
  try {
    const { clickhouse } = stores;
    const logger = createLogger('silent', 'test');
    await migrate(
      { ...stores, logger },
      { postgres: join(before, 'postgres'), clickhouse: join(before, 'clickhouse') },
    );
    const [tenant, a, b, gone] = ['tenant', 'a', 'b', 'gone'].map((name) => uuidOf(name));
    const start = Date.UTC(2019, 0, 1, 22) / 1_000;
    // More than a hundred months, with an hour on each side of midnight.
    for (const [id, traces, rollUpNumber] of [
      [a, 3, 1],
      [b, 2, 1],
      [gone, 7, 1],
      [a, 5, 2],
      [gone, 0, 2],
    ]) {
      await clickhouse.command({
        name: 'test',
        sql: `INSERT INTO usage_hourly SELECT {tenant:UUID}, 'user', addMonths(toDateTime({start:UInt32}, 'UTC'), intDiv(number, 4))
            + toIntervalHour(number % 4), {id:UUID}, {traces:UInt64}, {pass:UInt64} FROM numbers(440)
          SETTINGS max_partitions_per_insert_block = 0`,
        params: { tenant: tenant!, start, id: id!, traces: traces!, rollUpNumber: rollUpNumber! },
      });
    }
    expect((await migrate({ ...stores, logger })).applied).toContain('clickhouse/0005_usage_lists');
    const counted = await countedBy(clickhouse, 'user');
    const expected: Record<string, number> = {};
    for (let number = 0; number < 440; number++) {
      const at = Date.UTC(2019, Math.floor(number / 4), 1, 22 + (number % 4)) / 1_000;
      Object.assign(expected, { [`${at} ${a}`]: 5, [`${at} ${b}`]: 2 });
    }
    expect(counted).toEqual(expected);
  } finally {
    await stores.close();
  }
});
