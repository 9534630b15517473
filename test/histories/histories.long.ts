import { expect, test } from 'vitest';
import { seed as firstSeed } from '../house/seed.ts';
import { playHistories } from './play-histories.ts';

const tracesPerHistory = 2_000;

test.each(Array.from({ length: 10 }, (_, index) => ({ seed: firstSeed + index })))(
  `every run and every figure equals the model: seed $seed, ${tracesPerHistory} traces`,
  async ({ seed }) => {
    const played = await playHistories(seed, tracesPerHistory);
    console.info(`seed ${seed}:`, played);
    expect(played.traces).toBeGreaterThanOrEqual(tracesPerHistory);
  },
);
