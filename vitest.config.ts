import { configDefaults, defineConfig } from 'vitest/config';
import { builtModules, builtSources, isBuilt } from './test/engines/built-sources.ts';
import { canHoldSuites } from './test/engines/serve-addresses.ts';
import { isFullExtent } from './test/house/extent.ts';
import { listOmittedSuites, longSuites } from './test/house/long-suites.ts';
import { SlowestFirst } from './test/house/longest-first.ts';

/** Suites that share a process, see `sharing`, and that write to the log, whose adapter differs on the stack. */
const sharingOnTheStack = [
  'test/api/main/{attachments,feedback}/*.test.ts',
  'test/api/main/bulk-exports/bulk-exports.test.ts',
  'test/api/main/ingest/!(bad-input|event-loop).test.ts',
  'test/api/agent-server/{interrupts,runs,stateless,streams,unknown-nodes}.test.ts',
];

/**
 * Suites that use the log, the job queue, streams or objects, whose adapters differ on the stack. ClickHouse and Postgres
 * of the stack are the embedded programs, started by the same functions: suites that need only these run once.
 */
const suitesOnTheStack = [
  ...sharingOnTheStack,
  'test/api/main/health/*.test.ts',
  'test/e2e/*.test.ts',
  // Suites that run only on the stack.
  'test/**/*.stack.ts',
  'test/infra/jobs/open-jobs.test.ts',
  'test/pipelines/exports/scheduler.test.ts',
  'test/pipelines/projects/delete-projects.test.ts',
];

/**
 * Suites that neither count nor measure anything in their own process. In a whole run each worker runs them one after
 * another in one process, because loading the program takes longer than most of them.
 */
const sharing = [
  'test/api/{declared-answers,operations}.test.ts',
  'test/api/agent-server/**/!(flood|http-app|late-ends|library-versions).test.ts',
  'test/api/control-plane/!(quickstart|shared-origin|tokens).test.ts',
  'test/api/command-line/{check-port,ends,export/destinations,export/watch}.test.ts',
  'test/api/server/*.test.ts',
  'test/api/tools/{exact-numbers,http,resources,sessions,stored-data,tenancy,threads,tools}.test.ts',
  'test/api/main/**/!(metrics|event-loop|many-changes).test.ts',
  'test/contract/{dead-letters/in-process,event-log/in-process,objects/local}.test.ts',
  'test/docs/{architecture,guarantees,reference}.test.ts',
  'test/house/!(start-loads).test.ts',
  'test/infra/{clickhouse,postgres}/*.test.ts',
  'test/infra/{cache,config,errors,fairness,migrations,network,sealing,signing,tls}/*.test.ts',
  'test/infra/event-log/{in-process/*,kafka/positions,kafka/record-buffer}.test.ts',
  'test/infra/grafana/{dashboards,usage-queries}.test.ts',
  'test/infra/jobs/{catalogue,log-losses}.test.ts',
  'test/infra/telemetry/{health,telemetry-server}.test.ts',
  // The LangSmith SDK reads the environment once in each process, `change-turn` moves the clock, and `collect` and
  // `long-batches` measure their process.
  'test/pipelines/{attachments,feedback,ingest,projects,runs,streams,tenants,usage}/**/!(change-turn|collect|langsmith-sdk|long-batches).test.ts',
  'test/pipelines/{dead-letters,prompts,retention,shares}/!(changes).test.ts',
  'test/pipelines/{costs,datasets,oauth}/*.test.ts',
  'test/pipelines/deployments/{host,mask-secrets,revision-logs,states,unpack-tarball}.test.ts',
  'test/pipelines/agents/{assistants,auth,checkpoints,crons,graphs,requests,runs,store,threads,webhooks}/*.test.ts',
  'test/pipelines/agents/{open-deployment,streams/gaps,streams/publisher,streams/stream-hub,traces/child-runs}.test.ts',
  'test/pipelines/exports/{confirm-missing,deleted-workspace,object-keys,overlap,pace,states,withdrawn-leave,work-folders}.test.ts',
  'test/pipelines/exports/{derived-values,each-at-most,fair-attempts,progress-never-falls,schedules,tidy-run,destinations/*}.test.ts',
  'test/schemas/**/*.test.ts',
  'test/stack/{fetch-pinned,stack-settings}.test.ts',
];
/** Set by `make test-fast`. */
const isFast = process.env.RUNLAKE_TEST_FAST === 'true';
/** Agent servers start processes for graph code. */
const notFast = ['test/api/agent-server/**', ...longSuites];
/** Set by `test/house/run-suites.ts`. Otherwise each suite has its own process, and the project `embedded` has all suites. */
const isWholeRun = process.env.RUNLAKE_TEST_SHARING === 'true';
const everySuite = ['test/**/*.test.ts'];
/** `make test` runs stock clients against a Runlake process on the stack only, `make test-all` on embedded engines too. */
const onlyOnTheStack = canHoldSuites() && !isFullExtent ? ['test/e2e/*.test.ts'] : [];

/** Long suites whose turn is another run. */
const leftOut = listOmittedSuites(process.env.RUNLAKE_TEST_PART);

const usesBuild = process.env.RUNLAKE_TEST_BUILT === 'true';
const built = usesBuild && isBuilt();
if (usesBuild && !built)
  process.emitWarning('A source is newer than dist/: suites compile the sources, which takes half as long again.');

/** Every suite runs on embedded engines. If the native stack is up (`make stack`), `suitesOnTheStack` run on it too. */
export default defineConfig({
  plugins: built ? [builtSources()] : [],
  test: {
    server: { deps: { external: [builtModules] } },
    reporters: ['default', './test/house/closing-line.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    fileParallelism: true,
    // Three on two CPUs, because the longest suites mostly wait for servers.
    maxWorkers: isWholeRun ? 3 : 2,
    sequence: { sequencer: SlowestFirst },
    projects: [
      ...(isWholeRun
        ? [
            embedded('embedded', {
              include: everySuite,
              exclude: [...configDefaults.exclude, ...sharing, ...onlyOnTheStack, ...leftOut.suites],
            }),
            embedded('embedded-sharing', {
              include: sharing,
              exclude: isFast ? notFast : [...leftOut.suites],
              isolate: false,
            }),
          ]
        : [embedded('embedded', { include: everySuite })]),
      ...(canHoldSuites()
        ? isWholeRun
          ? [
              onStack('stack', {
                include: suitesOnTheStack,
                exclude: [...sharingOnTheStack, ...leftOut.suites, ...leftOut.onStack],
              }),
              onStack('stack-sharing', {
                include: sharingOnTheStack,
                exclude: [...leftOut.suites, ...leftOut.onStack],
                isolate: false,
              }),
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

function onStack(name: string, test: SuitesOf) {
  return {
    extends: true as const,
    test: {
      ...test,
      name,
      globalSetup: ['test/engines/stack-setup.ts'],
      setupFiles: ['test/engines/runlake-on-stack.ts'],
    },
  };
}
