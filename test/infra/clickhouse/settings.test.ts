import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Warehouse } from '../../../infra/clickhouse/client.ts';
import { profiles } from '../../../infra/clickhouse/settings.ts';
import { freshStores } from '../../engines/stores.ts';

let stores: Awaited<ReturnType<typeof freshStores>>;
let warehouse: Warehouse;

beforeAll(async () => {
  stores = await freshStores();
  warehouse = stores.warehouse;
});
afterAll(() => stores?.close());

/** `wait_end_of_query` is for the HTTP interface alone; client.test.ts shows that failures keep out of bodies. */
const settingsOf = (profile: object) => Object.keys(profile).filter((name) => name !== 'wait_end_of_query');

/** An expression for the settings under which it is evaluated, as text by name. */
const inForce = (names: readonly string[]) =>
  `map(${names.map((name) => `'${name}', toString(getSetting('${name}'))`).join(', ')})`;

const expected = (profile: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(settingsOf(profile).map((name) => [name, asText(profile[name])]));

/** Some switches are numbers and some are truth values, which `toString` tells apart and the interface does not. */
const asText = (value: unknown) =>
  value === 0 || value === 1 ? expect.stringMatching(value === 1 ? /^(1|true)$/ : /^(0|false)$/) : String(value);

describe('the settings that were sent are in force', () => {
  it('in a query', async () => {
    const [row] = await warehouse.query<{ v: object }>({
      name: 'settings-of-query',
      sql: `SELECT ${inForce([...settingsOf(profiles.read), 'log_comment', 'max_execution_time'])} AS v`,
      timeoutMs: 1_500,
    });
    expect(row?.v).toEqual(expected({ ...profiles.read, log_comment: 'settings-of-query', max_execution_time: '1.5' }));
  });

  it('in a statement', async () => {
    await warehouse.command({
      name: 'test',
      sql: `CREATE TABLE settings_of_statement ENGINE = MergeTree ORDER BY () AS SELECT ${inForce(settingsOf(profiles.write))} AS v`,
    });
    expect(await valuesOf('settings_of_statement')).toEqual([expected(profiles.write)]);
  });

  it('in an insert', async () => {
    await warehouse.command({
      name: 'test',
      sql: `CREATE TABLE settings_of_insert (n UInt8, v Map(String, String) DEFAULT ${inForce([...settingsOf(profiles.insert), 'insert_deduplication_token'])})
        ENGINE = MergeTree ORDER BY n`,
    });
    await warehouse.insertBody({
      name: 'test',
      table: 'settings_of_insert',
      columns: ['n'],
      format: 'JSONEachRow',
      body: Buffer.from('{"n":1}'),
      token: 'the token',
    });
    expect(await valuesOf('settings_of_insert')).toEqual([
      expected({ ...profiles.insert, insert_deduplication_token: 'the token' }),
    ]);
  });
});

const valuesOf = async (table: string) =>
  (await warehouse.query<{ v: object }>({ name: 'test', sql: `SELECT v FROM ${table}` })).map(({ v }) => v);
