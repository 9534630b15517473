import { expect, test } from 'vitest';
import { formatMarkedJson, parseMarkedJson } from '../../../infra/json/marked-json.ts';
import { Random } from '../../histories/random.ts';
import { seed } from '../../house/seed.ts';

test('numbers are kept however they are written', async () => {
  const random = new Random(seed);
  const digits = (max: number) =>
    Array.from({ length: 1 + random.int(max) }, () => (random.chance(0.4) ? 0 : random.int(10))).join('');
  const drawNumber = () =>
    [
      random.pick(['', '-']),
      random.pick(['0', `${1 + random.int(9)}${digits(20)}`]),
      random.pick(['', `.${digits(20)}`]),
      random.pick(['', '', `${random.pick(['e', 'E'])}${random.pick(['', '+', '-'])}${digits(3)}`]),
    ].join('');
  const numbers = Array.from({ length: 20_000 }, drawNumber).join(random.pick([',', ', ']));
  const text = `{"metadata":[${numbers}]}`;
  expect(formatMarkedJson(parseMarkedJson(text))).toBe(text.replaceAll(', ', ','));
});

test('a number of millions of digits is read as JavaScript reads it', () => {
  for (const number of ['1'.repeat(10_000_000), `0.${'1'.repeat(10_000_000)}`, `1e${'0'.repeat(10_000_000)}`])
    expect(parseMarkedJson(`[${number},1.0]`)).toEqual([Number(number), expect.stringMatching(/:1\.0$/)]);
});
