import { beforeAll, expect, it } from 'vitest';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { runCommand } from './run-command.ts';

/** `runlake dlq` with more records than its limit, on the in-process log. */
const stores = forSuite(() => freshStores());
const run = (...args: string[]) =>
  runCommand(['dlq', ...args], {
    ...stores.environment,
    RUNLAKE_CLICKHOUSE_URL: stores.clickhouseUrl,
    RUNLAKE_DATABASE_URL: stores.databaseUrl,
    RUNLAKE_SECRET_KEY: 'a secret key of the tests',
    RUNLAKE_DATA_DIR: '/dev/null/none',
  });

beforeAll(async () => {
  await stores.database.execute(
    `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step, dead_at)
     SELECT 'run-events', 0, n, 'key', 'not a record', '{}', 'not in the wire format', 'framing',
       timestamptz '2026-01-31T12:00:00Z' + n * interval '1 s' FROM generate_series(1, 5) AS n`,
  );
});

it('lists and replays older records with the --until that it prints', async () => {
  const [listed, replayed] = [await run('list', '--limit', '2'), await run('replay', '--all', '--limit', '2')];
  const older = 'For older records, add --until 2026-01-31T12:00:03.000Z';
  expect(listed.text).toMatch(/run-events\/5 .*\nrun-events\/4 .*\n/);
  expect(listed.text).toContain(`${older}\n`);
  expect(replayed.text).toMatch(/^run-events\/4: not replayed: .*\nrun-events\/5: not replayed: .*\n/);
  expect(replayed.text).toContain(`0 replayed, 2 not replayed.\n${older}\n`);
  const rest = await run('replay', '--step', 'framing', '--until', '2026-01-31T12:00:03.000Z', '--limit', '3');
  expect(rest.text).toMatch(
    /^run-events\/1: .*\nrun-events\/2: .*\nrun-events\/3: .*\n0 replayed, 3 not replayed\.\n$/,
  );
});

it('refuses a step that no record can have', async () => {
  const { text, code } = await run('list', '--step', 'inspect');
  expect(text).toContain("Unknown step 'inspect'. Steps: framing, schema, walk, key, insert, defer.");
  expect(code).toBe(1);
});

it('asks for a larger limit if more records have the same time', async () => {
  await stores.database.execute(
    `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step, dead_at)
     SELECT 'run-events', 0, n, 'key', 'not a record', '{}', 'not in the wire format', 'defer',
       timestamptz '2026-01-31T11:00:00Z' FROM generate_series(11, 13) AS n`,
  );
  const advice = 'More than 2 records have the time 2026-01-31T11:00:00.000Z: use a larger --limit.\n';
  expect((await run('list', '--step', 'defer', '--limit', '2')).text).toContain(advice);
  expect((await run('list', '--step', 'defer', '--limit', '3')).text).not.toMatch(/larger|older/);
});
