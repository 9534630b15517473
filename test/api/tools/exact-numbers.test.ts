import { expect, it } from 'vitest';
import { openMainApi } from '../../../api/tools/main-api.ts';

const read = (text: string) =>
  openMainApi(
    {
      send: async () => ({ status: 200, text }),
      credentials: { key: 'k', workspace: undefined },
      endpoint: 'http://main.example',
    },
    { maxReadBytes: 1, signal: new AbortController().signal },
  ).get('/');

it.each([
  ['{"a":1700000000000000001}', { a: '1700000000000000001' }],
  ['{"a":-1700000000000000001}', { a: '-1700000000000000001' }],
  ['{"a":1700000000000000000,"b":0.30000000000000004}', { a: '1700000000000000000', b: 0.30000000000000004 }],
  [
    '{"\\\\":1700000000000000001,"\\"1":[1700000000000000003]}',
    { '\\': '1700000000000000001', '"1': ['1700000000000000003'] },
  ],
  ['[": 1234567890123456789",0.30000000000000004]', [': 1234567890123456789', 0.30000000000000004]],
  [
    '[1234567890123456.5,1234567890123456e2,1234567890123456]',
    [1234567890123456.5, 1234567890123456e2, 1234567890123456],
  ],
])('%s is read without losing digits', async (text, expected) => {
  expect(JSON.parse(JSON.stringify(await read(text)))).toEqual(expected);
});

it.each([
  ['[1.0,-2.50,0.0,1e2,1E+2,15e-1,7]', '[1,-2.5,0,100,100,1.5,7]'],
  ['{"a":{"b":[2.0]},"c":"1.0 and 1e5","1.0":3}', '{"a":{"b":[2]},"c":"1.0 and 1e5","1.0":3}'],
  ['{"__proto__":1.0,"toJSON":2.0}', '{"__proto__":1,"toJSON":2}'],
  ['12345678901234567890', '"12345678901234567890"'],
  ['3.0', '3'],
])('%s is returned as %s', async (text, expected) => {
  expect(JSON.stringify(await read(text))).toBe(expected);
});

it.each([
  ['lists', (levels: number, leaf: string) => `${'['.repeat(levels)}${leaf}${']'.repeat(levels)}`],
  ['objects', (levels: number, leaf: string) => `${'{"__proto__":'.repeat(levels)}${leaf}${'}'.repeat(levels)}`],
])('%s below 500 others are replaced', async (_, nest) => {
  const marker = '"… (nested deeper than 500 levels)"';
  for (const leaf of ['"leaf"', '12345678901234567890']) {
    const whole = nest(500, '"leaf"');
    expect(JSON.stringify(await read(whole))).toBe(whole);
    for (const levels of [501, 3_000, 100_000])
      expect(JSON.stringify(await read(nest(levels, leaf)))).toBe(nest(500, marker));
  }
});

it.each([
  ['base64', 'A'.repeat(20_000_000)],
  ['escapes', '\n'.repeat(5_000_000)],
])('a large text of %s beside a large integer is read', async (_, text) => {
  const sent = JSON.stringify({ a: [0], text }).replace('[0]', '[12345678901234567890]');
  expect(JSON.parse(JSON.stringify(await read(sent)))).toEqual({ a: ['12345678901234567890'], text });
});
