import { expect, test } from 'vitest';
import { isFullExtent } from '../house/extent.ts';
import { seed } from '../house/seed.ts';
import { playHistories } from './play-histories.ts';

const traces = isFullExtent ? 1_200 : 150;

test.each([{ seed }])(
  `every run and every figure equals the model: seed $seed, ${traces} traces`,
  {
    timeout: 600_000,
  },
  async ({ seed }) => {
    const played = await playHistories(seed, traces);
    console.info(`seed ${seed}:`, played);
    expect(played.traces).toBeGreaterThanOrEqual(traces);
    expect(played.kills).toBeGreaterThan(0);
  },
);
