import { expect, it } from 'vitest';
import { RowBinaryReader, readNullableTextRows } from '../../../infra/clickhouse/row-binary.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';

const stores = forSuite(() => freshStores({ migrated: false }));

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

it('decodes the other types', async () => {
  const id = '00112233-4455-6677-8899-aabbccddeeff';
  const reader = new RowBinaryReader(
    await read(
      `SELECT toUUID('${id}'), toInt64(-5), toInt64(9007199254740991), toUInt8(200), (toUInt8(1), 'a'), [toUInt8(1), 2],
         toDecimal256('-1.5', 20), toInt256('57896044618658097711785492504343953926634992332820282019728792003956564819967'),
         CAST(NULL AS Nullable(UUID)), CAST('${id}' AS Nullable(UUID))`,
    ),
  );
  const values = [
    reader.uuid(),
    reader.int64(),
    reader.int64(),
    reader.uint8(),
    [reader.uint8(), reader.text().toString()],
    reader.array(() => reader.uint8()),
    reader.int256(),
    reader.int256(),
    reader.nullable(() => reader.uuid()),
    reader.nullable(() => reader.uuid()),
  ];
  expect(reader.isAtEnd).toBe(true);
  const decimal = -150_000_000_000_000_000_000n;
  expect(values).toEqual([id, -5, 2 ** 53 - 1, 200, [1, 'a'], [1, 2], decimal, 2n ** 255n - 1n, undefined, id]);
});
