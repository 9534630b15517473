/**
 * How much the suites run. `make test` keeps the run short for each commit: long suites take a random part of their cases,
 * shorter loads and one version of each client. `make test-all` runs all of them.
 */
import { Random } from '../histories/random.ts';

export const isFullExtent = process.env.RUNLAKE_TEST_ALL === 'true';

/** In `make test` a random part of the cases, at least one; another part in each run, so that all are run over time. */
export function someOf<Case>(cases: readonly Case[], part: number): readonly Case[] {
  if (isFullExtent) return cases;
  const random = new Random(Math.floor(Math.random() * 2 ** 31));
  const chosen = new Set(
    random.shuffled(cases.map((_, index) => index)).slice(0, Math.max(1, Math.ceil(cases.length * part))),
  );
  return cases.filter((_, index) => chosen.has(index));
}
