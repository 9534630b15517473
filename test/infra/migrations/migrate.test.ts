import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { checkMigrations, type MigrationFolders, migrate } from '../../../infra/migrations/migrate.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { folderForTest } from '../../folders.ts';
import { logger } from '../../silent-logger.ts';

const opened: FreshStores[] = [];
afterEach(async () => {
  for (const stores of opened.splice(0)) await stores.close();
});

async function openEmptyStores(): Promise<FreshStores> {
  const stores = await freshStores({ migrated: false });
  opened.push(stores);
  return stores;
}

/** Creates folders of migrations with these files. */
function write(files: Record<string, string>): MigrationFolders {
  const root = folderForTest();
  for (const store of ['postgres', 'clickhouse']) mkdirSync(join(root, store));
  for (const [path, sql] of Object.entries(files)) writeFileSync(join(root, path), sql);
  return { postgres: join(root, 'postgres'), clickhouse: join(root, 'clickhouse') };
}

const listTables = async ({ clickhouse, database }: FreshStores) => ({
  clickhouse: (
    await clickhouse.query<{ name: string }>({
      name: 'test',
      sql: 'SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY name',
    })
  ).map(({ name }) => name),
  postgres: (
    await database.query<{ name: string }>(
      "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename",
    )
  ).map(({ name }) => name),
});

const table = (name: string) => `CREATE TABLE ${name} (n UInt64) ENGINE = MergeTree ORDER BY n;\n`;

it('tables that were made for another cluster are refused at each start, also if no migration is missing', async () => {
  const stores = await openEmptyStores();
  await migrate({ ...stores, logger });
  const sql = 'ALTER TABLE runlake_migrations UPDATE shards = 2 WHERE true SETTINGS mutations_sync = 2';
  await stores.clickhouse.command({ name: 'test', sql });
  const refusal = { code: 'PART_UNUSABLE', message: expect.stringContaining('a cluster of 2 shards') };
  await expect(migrate({ ...stores, logger })).rejects.toMatchObject(refusal);
  await expect(checkMigrations(stores)).rejects.toMatchObject(refusal);
});

describe('the schemas of this release', () => {
  it('are applied once to empty stores and recorded', async () => {
    const stores = await openEmptyStores();
    const { pending } = await checkMigrations(stores);
    expect(pending).toContain('clickhouse/0001_runs');
    expect(pending).toContain('postgres/0001_tenants');
    expect((await listTables(stores)).postgres).toEqual([]);
    expect(await migrate({ ...stores, logger })).toEqual({ applied: pending });
    expect(await migrate({ ...stores, logger })).toEqual({ applied: [] });
    expect(await checkMigrations(stores)).toEqual({ pending: [] });
    const { clickhouse, postgres } = await listTables(stores);
    expect(clickhouse).toEqual(
      expect.arrayContaining(['runs', 'traces', 'usage_hourly', 'usage_daily', 'feedback', 'runlake_migrations']),
    );
    expect(postgres).toEqual(
      expect.arrayContaining(['organizations', 'projects', 'usage_dirty_hours', 'runlake_migrations']),
    );
  });

  it('are applied once if several processes start concurrently', async () => {
    const stores = await openEmptyStores();
    const { pending } = await checkMigrations(stores);
    const outcomes = await Promise.all(Array.from({ length: 4 }, () => migrate({ ...stores, logger })));
    expect(outcomes.map(({ applied }) => applied).sort((a, b) => b.length - a.length)).toEqual([pending, [], [], []]);
    expect(await findStepsRecordedTwice(stores)).toEqual([]);
  });
});

const findStepsRecordedTwice = ({ clickhouse }: FreshStores) =>
  clickhouse.query({
    name: 'test',
    sql: 'SELECT version, statement, state FROM runlake_migrations GROUP BY ALL HAVING count() > 1',
  });

describe('refuses', () => {
  it('a store with a newer schema than the code', async () => {
    const stores = await openEmptyStores();
    for (const store of ['postgres', 'clickhouse']) {
      const sql = store === 'postgres' ? 'CREATE TABLE newer (n int);' : table('newer');
      await migrate({ ...stores, logger }, write({ [`${store}/0001_newer.sql`]: sql }));
      const older = migrate({ ...stores, logger }, write({}));
      await expect(older).rejects.toMatchObject({ code: 'STORE_NEWER', message: expect.stringContaining(store) });
      await expect(checkMigrations(stores, write({}))).rejects.toMatchObject({ code: 'STORE_NEWER' });
      if (store === 'postgres') await stores.database.execute('DELETE FROM runlake_migrations');
    }
  });

  it.each(['postgres', 'clickhouse'])(
    'data of a development version, with other and more migrations (%s)',
    async (store) => {
      const stores = await openEmptyStores();
      const sql = (name: string) => (store === 'postgres' ? `CREATE TABLE ${name} (n int);` : table(name));
      const same = { [`${store}/0001_a.sql`]: sql('a') };
      const former = { ...same, [`${store}/0002_b.sql`]: sql('b'), [`${store}/0003_c.sql`]: sql('c') };
      await migrate({ ...stores, logger }, write(former));
      const release = write({ ...same, [`${store}/0002_squashed.sql`]: sql('d') });
      const refused = {
        code: 'MIGRATION_CHANGED',
        message: expect.stringMatching(`${store} migration 0002_b .* development version`),
        remedy: expect.stringMatching(/export .* delete the data folder or both databases/),
      };
      await expect(migrate({ ...stores, logger }, release)).rejects.toMatchObject(refused);
      await expect(checkMigrations(stores, release)).rejects.toMatchObject(refused);
      expect((await listTables(stores))[store as 'postgres' | 'clickhouse']).not.toContain('d');
    },
  );

  it.each(['postgres', 'clickhouse'])('a migration of %s that was changed after it was applied', async (store) => {
    const stores = await openEmptyStores();
    const sql = store === 'postgres' ? 'CREATE TABLE kept (n int);' : table('kept');
    await migrate({ ...stores, logger }, write({ [`${store}/0001_kept.sql`]: sql }));
    const changed = migrate({ ...stores, logger }, write({ [`${store}/0001_kept.sql`]: `${sql}-- more` }));
    await expect(changed).rejects.toMatchObject({
      code: 'MIGRATION_CHANGED',
      message: expect.stringContaining('0001_kept'),
    });
    const otherEnds = write({ [`${store}/0001_kept.sql`]: sql.replaceAll('\n', '\r\n') });
    expect(await checkMigrations(stores, otherEnds)).toEqual({ pending: [] });
  });

  it('a failed Postgres migration: it changes nothing, and is applied when it is corrected', async () => {
    const stores = await openEmptyStores();
    const files = { 'postgres/0001_first.sql': 'CREATE TABLE a (n int);' };
    const failing = { ...files, 'postgres/0002_second.sql': 'CREATE TABLE b (n int); CREATE TABLE a (n int);' };
    await expect(migrate({ ...stores, logger }, write(failing))).rejects.toMatchObject({
      code: 'MIGRATION_FAILED',
      message: expect.stringContaining('0002_second failed: relation "a" already exists'),
    });
    expect((await listTables(stores)).postgres).toEqual(['a', 'runlake_migrations']);
    const corrected = { ...files, 'postgres/0002_second.sql': 'CREATE TABLE b (n int);' };
    expect(await migrate({ ...stores, logger }, write(corrected))).toEqual({ applied: ['postgres/0002_second'] });
  });

  it('a failed ClickHouse migration: it keeps its finished statements, and resumes when the rest is corrected', async () => {
    const stores = await openEmptyStores();
    const one = 'clickhouse/0001_one.sql';
    const failed = migrate({ ...stores, logger }, write({ [one]: `${table('a')}${table('c')}SELECT nonsense;` }));
    await expect(failed).rejects.toMatchObject({ code: 'MIGRATION_FAILED' });
    // A change in a finished statement:
    const changed = migrate({ ...stores, logger }, write({ [one]: `${table('other')}${table('c')}${table('d')}` }));
    await expect(changed).rejects.toMatchObject({ code: 'MIGRATION_CHANGED' });
    // A correction in the failed statement:
    await migrate({ ...stores, logger }, write({ [one]: `${table('a')}${table('c')}${table('d')}` }));
    expect((await listTables(stores)).clickhouse).toEqual(['a', 'c', 'd', 'runlake_migrations']);
  });

  it('an existing table that the migration did not create', async () => {
    const stores = await openEmptyStores();
    await stores.clickhouse.command({ name: 'test', sql: table('a').replace(';', '') });
    await expect(
      migrate({ ...stores, logger }, write({ 'clickhouse/0001_one.sql': table('a') })),
    ).rejects.toMatchObject({
      code: 'MIGRATION_FAILED',
    });
  });
});

describe('a process that dies', () => {
  const files = {
    'clickhouse/0001_one.sql': `${table('a')}-- a comment; with a semicolon\n${table('b')}ALTER TABLE a ADD COLUMN s String;`,
  };

  /**
   * Returns a ClickHouse client that dies at command number `last`: before ClickHouse receives the command, or after
   * its execution and before the response.
   */
  function dying({ command, ...rest }: ClickHouse, last: number, moment: 'before' | 'after'): ClickHouse {
    let commands = 0;
    const failingClickhouse: ClickHouse = {
      ...rest,
      get servers() {
        return [failingClickhouse];
      },
      command: async (query) => {
        commands += 1;
        if (commands > last || (commands === last && moment === 'before')) throw new Error('dead');
        await command(query);
        if (commands === last) throw new Error('dead');
      },
    };
    return failingClickhouse;
  }

  const moments = (['before', 'after'] as const).flatMap((moment) =>
    Array.from({ length: 11 }, (_, index) => ({ moment, command: index + 1 })),
  );
  it.each(moments)('$moment command $command: the next process finishes the migration', async ({ moment, command }) => {
    const stores = await openEmptyStores();
    const written = write(files);
    const dead = migrate({ ...stores, logger, clickhouse: dying(stores.clickhouse, command, moment) }, written);
    await expect(dead).rejects.toThrow('dead');
    await migrate({ ...stores, logger }, written);
    expect(await checkMigrations(stores, written)).toEqual({ pending: [] });
    expect((await listTables(stores)).clickhouse).toEqual(['a', 'b', 'runlake_migrations']);
    await stores.clickhouse.query({ name: 'test', sql: 'SELECT n, s FROM a' });
  });
});
