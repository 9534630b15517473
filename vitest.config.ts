import { defineConfig } from 'vitest/config';
import { canHoldSuites } from './test/engines/serve-addresses.ts';
import { LongestFirst } from './test/house/longest-first.ts';

/** Suites that touch stores, log or queues, and neither end engines nor look at how they are embedded. */
const suitesOnTheStack = [
  'test/api/main/**/*.test.ts',
  'test/api/agent-server/{runs,stateless,streams}.test.ts',
  'test/api/tenancy.test.ts',
  'test/e2e/*.test.ts',
  // Those that are of the stack alone.
  'test/**/*.stack.ts',
  'test/pipelines/agents/{checkpoints/leased-saver,crons/fire-cron,runs/run-rows,threads/thread-rows}.test.ts',
  'test/infra/{clickhouse,jobs,migrations,postgres}/*.test.ts',
  'test/pipelines/{attachments,feedback,projects,runs,streams,tenants,usage}/*.test.ts',
  'test/pipelines/exports/coordinate-export.test.ts',
  'test/pipelines/ingest/sink/*.test.ts',
];

/** Every suite runs on embedded engines; where the native stack is up (`make stack`), those that it concerns run on it too. */
export default defineConfig({
  test: {
    reporters: ['default', './test/house/closing-line.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    fileParallelism: true,
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        extends: true,
        test: {
          name: 'embedded',
          include: ['test/**/*.test.ts', 'docs/guide/**/*.test.ts'],
          globalSetup: ['test/engines/global-setup.ts'],
        },
      },
      ...(canHoldSuites() ? [onStack()] : []),
    ],
  },
});

function onStack() {
  return {
    extends: true as const,
    test: {
      name: 'stack',
      include: suitesOnTheStack,
      // How bodies are read has nothing to do with where their runs go.
      exclude: ['test/api/main/ingest/event-loop.test.ts'],
      globalSetup: ['test/engines/stack-setup.ts'],
      setupFiles: ['test/engines/runlake-on-stack.ts'],
    },
  };
}
