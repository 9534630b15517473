import { configDefaults, defineConfig } from 'vitest/config';
import { builtModules, builtSources, isBuilt } from './test/engines/built-sources.ts';
import { canHoldSuites } from './test/engines/serve-addresses.ts';
import { LongestFirst } from './test/house/longest-first.ts';

/**
 * Suites that reach log, queue or streams, which are others there. ClickHouse and Postgres of the stack are the same
 * programs as the embedded ones, started by the same functions: what needs no more than those is told by the embedded
 * ones.
 */
const suitesOnTheStack = [
  'test/api/main/**/*.test.ts',
  'test/api/agent-server/{interrupts,runs,stateless,streams,unknown-nodes}.test.ts',
  'test/api/tenancy.test.ts',
  'test/e2e/*.test.ts',
  // Those that are of the stack alone.
  'test/**/*.stack.ts',
  'test/infra/jobs/open-jobs.test.ts',
  'test/pipelines/exports/coordinate-export.test.ts',
  'test/pipelines/projects/delete-projects.test.ts',
];

/**
 * Suites that neither count nor measure what goes on in their own process. In a whole run they follow one another in
 * one process a worker: to load the program anew for each takes longer than most of them.
 */
const sharing = [
  'test/api/server/*.test.ts',
  'test/api/main/**/!(metrics|event-loop).test.ts',
  'test/infra/{clickhouse,postgres}/*.test.ts',
  'test/infra/{cache,config,errors,migrations,network,sealing,signing}/*.test.ts',
  'test/infra/grafana/{dashboards,usage-queries}.test.ts',
  'test/infra/jobs/{catalogue,log-losses}.test.ts',
  'test/pipelines/{attachments,feedback,ingest,projects,runs,streams,tenants,usage}/**/*.test.ts',
  'test/pipelines/agents/{assistants,crons,graphs,runs,threads,webhooks}/*.test.ts',
  'test/pipelines/exports/{day-windows,deleted-workspace,export-states,overlap,pace,paths-told,withdrawn-leave,work-folders}.test.ts',
  'test/schemas/**/*.test.ts',
];
/** Those of them that are of the stack, too. */
const sharingOnTheStack = ['test/api/main/**/!(metrics|event-loop).test.ts'];
/** Said by `test/house/run-suites.ts`. Without it each suite has a process, and `--project embedded` knows all of them. */
const isWholeRun = process.env.RUNLAKE_TEST_SHARING === 'true';
const everySuite = ['test/**/*.test.ts'];

/**
 * Every suite runs on embedded engines; where the native stack is up (`make stack`), those that it concerns run on it too.
 */
export default defineConfig({
  plugins: process.env.RUNLAKE_TEST_BUILT === 'true' && isBuilt() ? [builtSources()] : [],
  test: {
    server: { deps: { external: [builtModules] } },
    reporters: ['default', './test/house/closing-line.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    fileParallelism: true,
    // On two processors, of three at a time one mostly waits: the longest suites stop servers and count seconds.
    maxWorkers: isWholeRun ? 3 : 2,
    sequence: { sequencer: LongestFirst },
    projects: [
      ...(isWholeRun
        ? [
            embedded('embedded', { include: everySuite, exclude: [...configDefaults.exclude, ...sharing] }),
            embedded('embedded-sharing', { include: sharing, isolate: false }),
          ]
        : [embedded('embedded', { include: everySuite })]),
      ...(canHoldSuites()
        ? isWholeRun
          ? [
              onStack('stack', { include: suitesOnTheStack, exclude: sharingOnTheStack }),
              onStack('stack-sharing', { include: sharingOnTheStack, isolate: false }),
            ]
          : [onStack('stack', { include: suitesOnTheStack })]
        : []),
    ],
  },
});

interface SuitesOf {
  readonly include: string[];
  readonly exclude?: string[];
  readonly isolate?: boolean;
}

function embedded(name: string, test: SuitesOf) {
  return { extends: true as const, test: { ...test, name, globalSetup: ['test/engines/global-setup.ts'] } };
}

function onStack(name: string, { exclude = [], ...test }: SuitesOf) {
  return {
    extends: true as const,
    test: {
      ...test,
      name,
      // How bodies are read has nothing to do with where their runs go.
      exclude: [...exclude, 'test/api/main/ingest/event-loop.test.ts'],
      globalSetup: ['test/engines/stack-setup.ts'],
      setupFiles: ['test/engines/runlake-on-stack.ts'],
    },
  };
}
