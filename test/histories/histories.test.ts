import { expect, test } from 'vitest';
import { playHistories } from './play-histories.ts';

/** Give a seed that failed here to see the same again, and leave it here once it is mended. */
const seeds = [20_260_101, 1_047_271_700];
const randomSeed = Math.floor(Math.random() * 2 ** 31);

test.each([{ seed: randomSeed, traces: 300 }, ...seeds.map((seed) => ({ seed, traces: 50 }))])(
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
