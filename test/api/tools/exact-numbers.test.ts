import { expect, it } from 'vitest';
import { openMainApi } from '../../../api/tools/main-api.ts';

const read = (text: string) =>
  openMainApi(
    async () => ({ status: 200, text }),
    { key: 'k', workspace: undefined },
    new AbortController().signal,
  ).get('/');

it.each([
  ['{"a":1700000000000000001}', { a: '1700000000000000001' }],
  ['{"a":-1700000000000000001}', { a: '-1700000000000000001' }],
  ['{"a":1700000000000000000,"b":0.30000000000000004}', { a: '1700000000000000000', b: 0.30000000000000004 }],
  ['[": 1234567890123456789",0.30000000000000004]', [': 1234567890123456789', 0.30000000000000004]],
  [
    '[1234567890123456.5,1234567890123456e2,1234567890123456]',
    [1234567890123456.5, 1234567890123456e2, 1234567890123456],
  ],
])('%s is read without losing digits', async (text, expected) => {
  expect(await read(text)).toEqual(expected);
});
