import { expect, test } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { seed } from '../house/seed.ts';
import { playHistories } from './play-histories.ts';

const isOverKafka = stackPart('kafka') !== undefined && stackPart('registry') !== undefined;

/**
 * Fewer traces than on embedded engines: after each kill, the group waits until the session of the dead member has
 * ended.
 */
const traces = 160;
const maxKills = 2;

test.runIf(isOverKafka).each([{ seed }])(
  `over Kafka every run and every figure equals the model: seed $seed, ${traces} traces`,
  { timeout: 600_000 },
  async ({ seed }) => {
    console.info(`seed ${seed}`);
    const played = await playHistories(seed, traces, maxKills);
    console.info(`seed ${seed}:`, played);
    expect(played.traces).toBeGreaterThanOrEqual(traces);
    expect(played.kills).toBeGreaterThan(0);
  },
);
