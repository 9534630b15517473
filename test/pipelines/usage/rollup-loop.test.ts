import { expect, it } from 'vitest';
import { reduceHours } from '../../../pipelines/usage/rollup-loop.ts';

it.each([
  [0, 20_000],
  [1, 5_000],
  [8, 1],
  [511, 1],
  // 4 ** 512 is infinite.
  [512, 1],
  [10_000, 1],
])('after %d failures a roll-up run counts at most %d hours', (failed, hours) => {
  expect(reduceHours(20_000, failed)).toBe(hours);
});
