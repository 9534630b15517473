/**
 * Selects how much of the suites runs. `make test` runs a random part of the cases of long suites, shorter loads and
 * one version of each client, so that it is fast enough for each commit. `make test-all` runs everything.
 */
import { Random } from '../histories/random.ts';
import { seed } from './seed.ts';

export const isFullExtent = process.env.RUNLAKE_TEST_ALL === 'true';

/**
 * Returns a random part of the cases in `make test`, at least one case. The seed of the run selects the part, so
 * that all cases run over time.
 */
export function pickSome<Case>(cases: readonly Case[], part: number): readonly Case[] {
  if (isFullExtent) return cases;
  const random = new Random(seed);
  return random.shuffled(cases).slice(0, Math.ceil(cases.length * part));
}
