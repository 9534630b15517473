import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts', 'docs/guide/**/*.test.ts'],
    reporters: ['default', './test/house/closing-line.ts'],
    globalSetup: ['test/engines/global-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    fileParallelism: true,
    maxWorkers: 2,
  },
});
