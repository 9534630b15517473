import { defineConfig } from 'vitest/config';

/** Runs the evaluations of this folder, for `test/e2e/langsmith-evals.test.ts`. */
export default defineConfig({
  test: { include: ['test/e2e/evals/*.eval.ts'], reporters: ['langsmith/vitest/reporter'] },
});
