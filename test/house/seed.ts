/**
 * Seed of all random choices of the suites: random cases, generated input, the part of the long suites. The first process
 * that loads this file picks it; its child processes inherit it, so that both attempts of `run-suites.ts` and all workers of
 * the runner have the same. `RUNLAKE_TEST_SEED` sets it, to repeat a run.
 */
process.env.RUNLAKE_TEST_SEED ||= String(Math.floor(Math.random() * 2 ** 31));

export const seed = Number(process.env.RUNLAKE_TEST_SEED);
