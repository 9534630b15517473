/**
 * Benches with SQL and figures of their own, which nothing else runs, with little data: a change of the product must not
 * break them unnoticed.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { pickSome } from '../house/extent.ts';

// The other cases of `query` find no run among so few.
const small: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  query: { BENCH_RUNS: '20000', BENCH_ROUNDS: '1', BENCH_CASES: 'a_common,c_tag,d_score' },
  stats: { BENCH_RUNS: '20000', BENCH_ROUNDS: '1' },
  page: { BENCH_RUNS: '20000', BENCH_ROUNDS: '1' },
  cluster: { BENCH_SCALE: '0.05' },
  export: { BENCH_SCALE: '0.002' },
};

test.each(pickSome(Object.entries(small), 0.4))(
  'bench %s measures what it says, with little data',
  { timeout: 300_000 },
  async (name, sizes) => {
    const { stdout } = await promisify(execFile)('npm', ['run', '--silent', 'bench', '--', name], {
      env: { ...process.env, ...sizes },
    });
    const figures = JSON.parse(stdout.trim().split('\n').at(-1) as string) as Record<string, unknown>;
    expect(figures).toMatchObject({ bench: name, ratio: expect.any(Number), target: expect.any(Number) });
    expect(figures.ratio).toBeGreaterThan(0);
  },
);
