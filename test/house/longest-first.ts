import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Suites that take more than ten seconds, longest first: if a long suite started last, one worker would be busy while
 * all others are idle. A suite that is missing from this list only makes the run longer. `make test-fast` leaves these
 * suites out.
 */
export const longest = [
  'test/histories/regressions.test.ts',
  'test/crash/servers.test.ts',
  'test/crash/deployments.test.ts',
  'test/api/control-plane/quickstart.test.ts',
  'test/api/control-plane/requests.test.ts',
  'test/pipelines/runs/stats/fact-stats.test.ts',
  'test/crash/exports.test.ts',
  'test/crash/chaos.test.ts',
  'test/docs/chapters.test.ts',
  'test/api/tenancy.test.ts',
  'test/api/command-line/export/commands.test.ts',
  'test/pipelines/exports/in-buckets.stack.ts',
  'test/crash/steps.test.ts',
  'test/infra/event-log/kafka/partition-consumer.test.ts',
  'test/histories/histories.test.ts',
  'test/infra/event-log/kafka/producer.test.ts',
  'test/crash/stalls.test.ts',
  'test/crash/agent-servers.test.ts',
  'test/api/command-line/commands.test.ts',
  'test/pipelines/datasets/large-dataset.test.ts',
  'test/pipelines/datasets/version-histories.test.ts',
  'test/pipelines/exports/export-run.test.ts',
  'test/crash/agents.test.ts',
  'test/crash/servers-away.test.ts',
  'test/crash/organizations.test.ts',
  'test/crash/agent-crons.test.ts',
  'test/pipelines/exports/scheduler.test.ts',
  'test/docs/demo.test.ts',
  'test/docs/quickstarts.test.ts',
  'test/docs/readme.test.ts',
  'test/docs/traced-run.test.ts',
  'test/api/agent-server/flood.test.ts',
  'test/histories/histories.stack.ts',
  'test/crash/engines.test.ts',
  'test/crash/export-servers.test.ts',
  'test/crash/sdk.test.ts',
  'test/api/command-line/roles.test.ts',
  'test/crash/kill.test.ts',
  'test/api/command-line/doctor.test.ts',
  'test/infra/embedded/postgres/start-postgres.test.ts',
  'test/infra/embedded/start.test.ts',
  'test/pipelines/exports/histories.test.ts',
  'test/api/main/ingest/large-body.stack.ts',
  'test/crash/members.test.ts',
  'test/crash/partitions.test.ts',
  'test/pipelines/ingest/sink/any-order.test.ts',
  'test/infra/docker/image.test.ts',
  'test/infra/event-log/kafka/kafka-log.test.ts',
  'test/infra/jobs/redis-returns.stack.ts',
  'test/crash/backlog.test.ts',
  'test/pipelines/exports/worker.test.ts',
  'test/pipelines/runs/filter/random-filters.test.ts',
  'test/pipelines/runs/stats/read-stats.test.ts',
  'test/api/main/model-prices/costs.test.ts',
  'test/api/main/billing/usage-limits.test.ts',
  'test/pipelines/runs/filter/run-filter.test.ts',
  'test/api/main/runs/threads.test.ts',
  'test/api/main/large-pages.test.ts',
  'test/api/main/annotation-queues/annotation-queues.test.ts',
  'test/infra/duckdb/encoder.test.ts',
  'test/api/command-line/doctor-agents.test.ts',
  'test/stack/stack.test.ts',
  'test/api/agent-server/sdk-versions.test.ts',
  'test/api/agent-server/library-versions.test.ts',
  'test/api/agent-server/typed-graphs.test.ts',
  'test/api/agent-server/http-app.test.ts',
  'test/pipelines/runs/find-page.test.ts',
  'test/pipelines/runs/descendant-figures.test.ts',
  'test/pipelines/runs/query-runs.test.ts',
  'test/api/main/ingest/read-back.test.ts',
  'test/pipelines/ingest/sink/sink.test.ts',
  'test/pipelines/usage/run-roll-up.test.ts',
  'test/pipelines/ingest/sink/poison.test.ts',
  'test/pipelines/ingest/otlp/tiny-elements.test.ts',
  'test/pipelines/usage/granular-usage.test.ts',
  'test/api/main/hostile-requests.test.ts',
  'test/api/main/runs/query-runs.test.ts',
  'test/pipelines/streams/stream-histories.test.ts',
  'test/api/main/ingest/bad-input.test.ts',
  'test/infra/migrations/migrate.test.ts',
  'test/pipelines/usage/roll-up.test.ts',
  'test/api/main/feedback/feedback.test.ts',
  'test/pipelines/ingest/sink/stored-once.test.ts',
];

/**
 * Orders suites: first the longest ones, of any project; then all others in the default order of vitest; last the
 * suites that share a process, grouped by project, because vitest reuses a process only if the next suite shares it
 * too.
 */
export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankByLength = ({ moduleId }: TestSpecification) => {
      const rank = longest.findIndex((name) => moduleId.endsWith(`/${name}`));
      return rank < 0 ? longest.length : rank;
    };
    const sharing = [...new Set(files.map(({ project }) => project).filter(({ config }) => !config.isolate))];
    const computeRank = (file: TestSpecification) =>
      rankByLength(file) + (sharing.indexOf(file.project) + 1) * (longest.length + 1);
    return (await super.sort(files)).sort((a, b) => computeRank(a) - computeRank(b));
  }
}
