import { once } from 'node:events';
import { expect, test } from 'vitest';
import { measure } from '../../bench/fairness/measure.ts';

const never = async (signal: AbortSignal) => {
  if (!signal.aborted) await once(signal, 'abort');
  signal.throwIfAborted();
};
const ok = async () => undefined;

/** Returns a request that completes this many times. */
function completes(times: number) {
  let left = times;
  return async (signal: AbortSignal) => {
    if (left-- <= 0) await never(signal);
  };
}

const requests: readonly [what: string, completes: number, expected: { completed: number; taken: number }][] = [
  ['a starved tenant has one unfinished sample', 0, { completed: 0, taken: 1 }],
  ['a tenant that only connects has one unfinished sample', 1, { completed: 0, taken: 1 }],
  ['an unfinished sample counts with its time so far', 4, { completed: 3, taken: 4 }],
  ['ends after its samples', 1_000, { completed: 200, taken: 200 }],
];

test.each(requests)('fairness: %s', async (_, times, expected) => {
  const measured = await measure({ pauseMs: 0, maxSeconds: 1, quiet: completes(times) }, ok);
  expect({ completed: measured.completed, taken: measured.taken.length }).toEqual(expected);
  expect(Math.max(...measured.taken)).toBeGreaterThanOrEqual(expected.completed === 200 ? 0 : 900);
});

test('fairness: an error of a request fails the measurement', async () => {
  const failing = async () => {
    throw new Error('refused');
  };
  await expect(measure({ pauseMs: 0, maxSeconds: 5, quiet: failing }, ok)).rejects.toThrow('refused');
});
