import { parseArgs } from 'node:util';

const full = {
  /** Warm-up runs of each server and of the floor. */
  warmUp: 2_000,
  rounds: 3,
  /** Runs in a turn by server, chosen for turns of similar duration. */
  atOnce: { product: 320, reference: 128 },
  alone: { product: 60, reference: 15 },
  large: { product: 64, reference: 32 },
  largeEvents: 5_000,
  idleStreams: 1_000,
  memoryRuns: 20_000,
};

export type Plan = typeof full;

/** Only checks that the bench works; its figures are meaningless. */
const quick: Plan = {
  warmUp: 32,
  rounds: 1,
  atOnce: { product: 64, reference: 32 },
  alone: { product: 5, reference: 2 },
  large: { product: 2, reference: 2 },
  largeEvents: 500,
  idleStreams: 20,
  memoryRuns: 100,
};

/** `npm run bench -- agents [--quick] [--memory-runs 20000]`. */
export function planOf(words: readonly string[]): Plan {
  const { values } = parseArgs({
    args: [...words],
    options: { quick: { type: 'boolean' }, 'memory-runs': { type: 'string' } },
  });
  const plan = values.quick ? quick : full;
  const { 'memory-runs': memoryRuns = plan.memoryRuns } = values;
  return { ...plan, memoryRuns: Number(memoryRuns) };
}
