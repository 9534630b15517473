/**
 * How much of the suites runs. `make test` runs a random part of the cases of long suites, shorter loads and one
 * version of each client, to be fast enough for each commit. `make test-all` runs everything.
 */
import { Random } from '../histories/random.ts';

export const isFullExtent = process.env.RUNLAKE_TEST_ALL === 'true';

/** In `make test`, a random part of the cases, at least one; each run picks another part, so all run over time. */
export function someOf<Case>(cases: readonly Case[], part: number): readonly Case[] {
  if (isFullExtent) return cases;
  const random = new Random(Math.floor(Math.random() * 2 ** 31));
  return random.shuffled(cases).slice(0, Math.ceil(cases.length * part));
}
