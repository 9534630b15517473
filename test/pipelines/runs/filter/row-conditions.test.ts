/** Conditions on keys and values of metadata in Postgres, compared with a model. */
import { expect, it } from 'vitest';
import { statements } from '../../../../infra/postgres/list-page.ts';
import { toJsonb } from '../../../../infra/postgres/value-types.ts';
import { parseExampleFilter, writeExampleCondition } from '../../../../pipelines/datasets/example-filter.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { Random } from '../../../histories/random.ts';
import { seed } from '../../../house/seed.ts';

const stores = forSuite(() => freshStores());

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

const random = new Random(seed);
const characters = [
  'a',
  'b',
  '.',
  '"',
  '\\',
  'é',
  '\u{1f600}',
  '%',
  '_',
  '\n',
  '\u007f',
  '\u0001',
  '\0',
  '\ud800',
  '": ',
];
const drawText = () => Array.from({ length: random.int(4) }, () => random.pick(characters)).join('');
const drawScalar = () => random.pick([drawText(), drawText(), '1', 'true', 1, 1.5, 1_000, 0.25, true, false, null]);

function drawObject(depth: number): { [key: string]: Json } {
  return Object.fromEntries(Array.from({ length: random.int(4) }, () => [drawText(), drawValue(depth - 1)]));
}

function drawValue(depth: number): Json {
  if (depth <= 0 || random.chance(0.4)) return drawScalar();
  return random.chance(0.3) ? Array.from({ length: random.int(3) }, () => drawValue(depth - 1)) : drawObject(depth);
}

/** Returns the pairs of an object, with the path of each value, as the filter language defines them. */
function listPairs(object: { [key: string]: Json }, prefix = ''): (readonly [path: string, value: Json])[] {
  const ofValue = (path: string, value: Json): (readonly [string, Json])[] => [
    [path, value],
    ...(Array.isArray(value)
      ? value.flatMap((item) => ofValue(path, item))
      : typeof value === 'object' && value !== null
        ? listPairs(value, `${path}.`)
        : []),
  ];
  return Object.entries(object).flatMap(([key, value]) => ofValue(prefix + key, value));
}

/** Returns the indexes of the rows that `filter` finds. */
async function find(filter: string, rows: readonly string[], before = ''): Promise<unknown[]> {
  const { sql, parameters } = writeExampleCondition(parseExampleFilter(filter)).compile(statements);
  return stores.database.query(
    `${before} SELECT place::int - 1 AS place FROM unnest($${parameters.length + 1}::text[]) WITH ORDINALITY AS texts (text, place)
     CROSS JOIN LATERAL (SELECT text::jsonb AS searchable) AS examples WHERE ${sql} ORDER BY place`,
    [...parameters, rows],
  );
}

const toStored = (text: string) => text.replace(/[\0\p{Surrogate}]/gu, '\ufffd');

it('finds exactly the rows with such a pair, whatever characters keys and values contain', async () => {
  const rows = Array.from({ length: 300 }, () => toJsonb(drawObject(3)));
  const pairsByRow = rows.map((row) => listPairs(JSON.parse(row)));
  const allPairs = pairsByRow.flat();
  const toText = (value: Json) => (typeof value === 'object' && value !== null ? undefined : String(value));
  const drawKey = () => (random.chance(0.8) ? random.pick(allPairs)[0] : drawText());
  let foundRows = 0;
  for (let turn = 0; turn < 150; turn++) {
    const [keys, values] = [[drawKey(), drawKey()], [drawText()]];
    for (const [path, value] of random.shuffled(allPairs)) {
      if (path === keys[0] && toText(value) !== undefined && random.chance(0.7)) values[0] = String(value);
    }
    const [key, value] = [JSON.stringify(keys[0]), JSON.stringify(values[0])];
    const isKey = (path: string) => path === toStored(keys[0]!);
    const isValue = (each: Json) => toText(each) === toStored(values[0]!);
    const [filter, matches] = random.pick<readonly [string, (path: string, value: Json) => boolean]>([
      [`eq(metadata_key, ${key})`, isKey],
      [`exists(metadata, ${key})`, isKey],
      [`in(metadata_key, ${JSON.stringify(keys)})`, (path) => keys.map(toStored).includes(path)],
      [`eq(metadata_value, ${value})`, (_, each) => isValue(each)],
      [`in(metadata_value, [${value}, 1])`, (_, each) => isValue(each) || Number(toText(each) || NaN) === 1],
      [`and(eq(metadata_key, ${key}), eq(metadata_value, ${value}))`, (path, each) => isKey(path) && isValue(each)],
      [`and(eq(metadata_key, ${key}), gt(metadata_value, 1))`, (path, each) => isKey(path) && isAboveOne(each)],
      [`and(eq(metadata_key, ${key}), neq(metadata_value, ${value}))`, (path, each) => isKey(path) && !isValue(each)],
    ]);
    const expected = pairsByRow.map((pairs) => pairs.some(([path, each]) => matches(path, each)));
    const places = (isFound: boolean) =>
      expected.flatMap((matching, place) => (matching === isFound ? [{ place }] : []));
    expect([filter, await find(filter, rows)]).toEqual([filter, places(true)]);
    expect([filter, await find(`not(${filter})`, rows)]).toEqual([filter, places(false)]);
    foundRows += places(true).length;
  }
  expect(foundRows).toBeGreaterThan(150);
});

/** Whether the value is a number above 1, or a text that contains one. No generated text does. */
const isAboveOne = (value: Json) => typeof value === 'number' && value > 1;

it.each([
  ['eq', '1234567890123456789', [0, 1]],
  ['neq', '1234567890123456789', [2, 3]],
  ['in', '[1234567890123456789, 0.12345678901234567890, 5]', [0, 1, 3]],
  ['gt', '1234567890123456788', [0, 1]],
])('compares numbers by all their digits: %s %s', async (operator, value, places) => {
  const numbers = ['1234567890123456789', '"1234567890123456789"', '1234567890123456788', '0.1234567890123456789'];
  const rows = numbers.map((number) => `{"guild":${number}}`);
  const filter = `and(eq(metadata_key, "guild"), ${operator}(metadata_value, ${value}))`;
  expect(await find(filter, rows)).toEqual(places.map((place) => ({ place })));
});

it.each([
  'and(eq(metadata_key, "a.b.c"), eq(metadata_value, "x"))',
  'exists(metadata, "c")',
  'in(metadata_key, ["a.b.c", "d"])',
  'neq(metadata_key, "a.b.c")',
  'and(eq(metadata_key, "b"), eq(metadata_value, "x"))',
])('lists the pairs only of rows that may have such a pair: %s', async (filter) => {
  const count = async (row: object) => {
    const plan = await find(filter, [JSON.stringify(row)], 'EXPLAIN (ANALYZE, TIMING OFF)');
    return plan.filter((line) => /CTE Scan on pairs .*\bloops=/.test(JSON.stringify(line))).length;
  };
  expect(await count({ a: { b: 'c' } })).toBe(0);
  expect(await count({ a: { b: { c: 'x' } }, b: 'x', 'a.b': 1 })).toBe(1);
});
