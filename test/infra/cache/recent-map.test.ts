import { expect, test } from 'vitest';
import { RecentMap } from '../../../infra/cache/recent-map.ts';

const open = (minEntries: number) => new RecentMap({ minEntries, wordsPerKey: 3, numbersPerValue: 2 });
/** Returns a key that differs from other keys only in the last word. */
const key = (number: number) => Uint32Array.of(7, 0xffffffff, number);

test('a key has the value that was set last', () => {
  const map = open(100);
  map.set(key(1), 0, 10.5, -1);
  map.set(key(2), 0, 2 ** 53 - 1, 2);
  map.set(key(1), 0, 11, 3);
  expect([map.get(key(1), 0), map.get(key(1), 0, 1)]).toEqual([11, 3]);
  expect([map.get(key(2), 0), map.get(key(2), 0, 1)]).toEqual([2 ** 53 - 1, 2]);
  expect(map.get(key(3), 0)).toBeUndefined();
});

test('a key is read from its position in a list of keys', () => {
  const map = open(10);
  const keys = Uint32Array.of(1, 2, 3, 4, 5, 6);
  map.set(keys, 3, 9, 0);
  expect(map.get(keys, 0)).toBeUndefined();
  expect(map.get(Uint32Array.of(4, 5, 6), 0)).toBe(9);
});

test('it holds at least the minimum of the newest entries and at most twice as many', () => {
  const map = open(1_000);
  for (let number = 0; number < 10_500; number++) map.set(key(number), 0, number, 0);
  const held = Array.from({ length: 10_500 }, (_, number) => map.get(key(number), 0)).map(
    (value, number) => value !== undefined && value === number,
  );
  expect(held.slice(-1_000).every(Boolean)).toBe(true);
  const count = held.filter(Boolean).length;
  expect(count).toBeGreaterThanOrEqual(1_000);
  expect(count).toBeLessThanOrEqual(2_000);
});
