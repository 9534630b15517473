import { expect, test } from 'vitest';
import { playHistories } from './play-histories.ts';

/** Each was a fault once. Leave a seed that failed here once it is mended. */
const regressions = [
  { seed: 20_260_101, traces: 50 },
  { seed: 1_047_271_700, traces: 50 },
  { seed: 1_964_562_166, traces: 150 },
];
const random = { seed: Math.floor(Math.random() * 2 ** 31), traces: 1_200 };

test.each([random, ...regressions])(
  'every run and every figure is what the model says: seed $seed, $traces traces',
  {
    timeout: 600_000,
  },
  async ({ seed, traces }) => {
    const played = await playHistories(seed, traces);
    console.info(`seed ${seed}:`, played);
    expect(played.traces).toBeGreaterThanOrEqual(traces);
    expect(played.kills).toBeGreaterThan(0);
  },
);
