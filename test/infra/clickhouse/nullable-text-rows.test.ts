import { afterAll, beforeAll, expect, it } from 'vitest';
import { readNullableTextRows } from '../../../infra/clickhouse/nullable-text-rows.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';

let stores: FreshStores;
beforeAll(async () => {
  stores = await freshStores({ migrated: false });
});
afterAll(() => stores?.close());

const read = (sql: string) => stores.clickhouse.queryText({ name: 'test', sql, format: 'RowBinary' });

it('decodes texts of every length and byte value unchanged', async () => {
  const lengths = [0, 1, 127, 128, 16_383, 16_384, 1_000_000];
  const answer = await read(
    `SELECT CAST(repeat('\\0\\xff"', n) AS Nullable(String)), CAST(NULL AS Nullable(String)) FROM (
       SELECT arrayJoin([${lengths.join(', ')}]) AS n)`,
  );
  const rows = readNullableTextRows(answer, 2);
  expect(rows.map(([text]) => text?.length)).toEqual(lengths.map((length) => length * 3));
  expect(rows[1]).toEqual([Buffer.from([0, 0xff, 0x22]), undefined]);
});

it('decodes an empty result as no rows', async () => {
  expect(readNullableTextRows(await read(`SELECT CAST('a' AS Nullable(String)) WHERE 0`), 1)).toEqual([]);
});
