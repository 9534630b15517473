import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readUsageRows } from '../../../pipelines/usage/read-usage-rows.ts';
import { freshStores } from '../../engines/stores.ts';

let stores: Awaited<ReturnType<typeof freshStores>>;
beforeAll(async () => {
  stores = await freshStores();
});
afterAll(() => stores?.close());

const uuid = (number: number) => `01234567-89ab-cdef-8123-${number.toString(16).padStart(12, '0')}`;

/** Rows in the format that ClickHouse writes: each a bucket, and its ids with their counts. */
async function written(rows: readonly (readonly [number, readonly (readonly [string, number])[]])[]) {
  const values = rows.map(
    ([bucket, entries]) =>
      `(${bucket}, [${entries.map(([id]) => `'${id}'`).join(',')}], [${entries.map(([, traces]) => traces).join(',')}])`,
  );
  const answer = await stores.clickhouse.queryText({
    name: 'test',
    sql: `SELECT * FROM values('bucket UInt32, ids Array(UUID), traces Array(UInt64)', ${values.join(', ')})`,
    format: 'RowBinary',
  });
  const { ids, rows: read } = readUsageRows(answer);
  return read.map(({ bucket, idIndexes, traces }) => [
    bucket,
    [...idIndexes].map((index, entry) => [ids[index], traces[entry]]),
  ]);
}

describe('usage rows in the format of ClickHouse', () => {
  it.each<[string, Parameters<typeof written>[0]]>([
    ['one entry', [[0, [[uuid(1), 1]]]]],
    ['no entry', [[7, []]]],
    ['the maximum bucket, and a count above 32 bits', [[4_294_967_295, [[uuid(255), 9_007_199_254_740_991]]]]],
    [
      'an id in several rows, and one whose bytes all differ',
      [
        [
          1,
          [
            [uuid(1), 3],
            ['00112233-4455-6677-8899-aabbccddeeff', 4],
          ],
        ],
        [1, [['00112233-4455-6677-8899-aabbccddeeff', 5]]],
        [2, [[uuid(1), 6]]],
      ],
    ],
    ['more entries than one byte can count', [[3, Array.from({ length: 3_000 }, (_, n) => [uuid(n), n + 1])]]],
  ])('%s', async (_, rows) => {
    expect(await written(rows)).toEqual(rows);
  });

  it('formats each id once', async () => {
    const answer = await stores.clickhouse.queryText({
      name: 'test',
      sql: "SELECT toUInt32(number) AS bucket, [toUUID('00112233-4455-6677-8899-aabbccddeeff')] AS ids, [number] AS traces FROM numbers(100)",
      format: 'RowBinary',
    });
    expect(readUsageRows(answer).ids).toEqual(['00112233-4455-6677-8899-aabbccddeeff']);
  });

  it('accepts an empty result', () => {
    expect(readUsageRows(Buffer.alloc(0))).toEqual({ ids: [], rows: [] });
  });
});
