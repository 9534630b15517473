import { defineConfig } from 'vitest/config';

/** Runs many more histories than the default tests: `npm run test:histories-long`. */
export default defineConfig({
  test: {
    include: ['test/histories/histories.long.ts'],
    testTimeout: 4 * 3_600_000,
  },
});
