/**
 * Long suites: failures, loads, random histories, programs, servers, screens of the dashboard, and suites of the API that
 * take long. Each `make test` runs one part of them, selected at random, and its last lines name all others.
 * `make test-all` and a run of named suites leave out none. Each part takes about the same time, and includes crashes
 * during ingest, exports, graph runs and changes of deployments, and some of the dashboard.
 */
import { isFullExtent } from './extent.ts';

export interface LongSuites {
  readonly suites: readonly string[];
  /** Suites that run on the stack only in this part; on embedded engines they run each time. */
  readonly onStack: readonly string[];
}

export const parts: readonly LongSuites[] = [
  {
    suites: [
      'test/crash/agent-servers.test.ts',
      'test/crash/deployments.test.ts',
      'test/crash/exports.test.ts',
      'test/crash/servers.test.ts',
      'test/crash/steps.test.ts',
      'test/pipelines/exports/derived-values.test.ts',
      'test/pipelines/exports/missing-files.stack.ts',
      'test/pipelines/agents/execute/trace-run.test.ts',
      'test/pipelines/agents/workers/hostile-graphs.test.ts',
      'test/pipelines/agents/workers/message-codec.test.ts',
      'test/api/agent-server/fair-slots.test.ts',
      'test/api/agent-server/hostile-requests.test.ts',
      'test/api/agent-server/sdk-versions.test.ts',
      'test/histories/regressions.test.ts',
      'test/pipelines/datasets/version-histories.test.ts',
      'test/pipelines/ingest/otlp/tiny-elements.test.ts',
      'test/pipelines/runs/find-page.test.ts',
      'test/infra/clickhouse/two-shards.test.ts',
      'test/infra/docker/image.test.ts',
      'test/infra/event-log/kafka/client.test.ts',
      'test/infra/event-log/kafka/consumer.test.ts',
      'test/infra/event-log/kafka/producer.test.ts',
      'test/infra/jobs/open-jobs.test.ts',
      'test/infra/telemetry/tracing/start-tracing.test.ts',
      'test/api/tools/conformance.test.ts',
      'test/api/main/feedback/many-feedback.test.ts',
      'test/api/main/ingest/event-loop.test.ts',
      'test/api/main/ingest/large-body.stack.ts',
      'test/web/exports.test.ts',
      'test/web/hostile.test.ts',
      'test/web/threads.test.ts',
      'test/docs/demo.test.ts',
    ],
    onStack: [
      'test/api/agent-server/streams.test.ts',
      'test/api/main/feedback/feedback.test.ts',
      'test/api/main/ingest/read-back.test.ts',
    ],
  },
  {
    suites: [
      'test/crash/agents.test.ts',
      'test/crash/sdk.test.ts',
      'test/crash/servers-away.test.ts',
      'test/crash/stalls.test.ts',
      'test/pipelines/exports/in-buckets.stack.ts',
      'test/api/agent-server/http-app.test.ts',
      'test/api/agent-server/library-versions.test.ts',
      'test/api/agent-server/rate-limits.test.ts',
      'test/api/agent-server/settings.test.ts',
      'test/api/control-plane/callback.test.ts',
      'test/api/control-plane/mcp-discover.test.ts',
      'test/api/control-plane/proxy.test.ts',
      'test/api/control-plane/several-hosts.stack.ts',
      'test/histories/histories.test.ts',
      'test/pipelines/ingest/sink/key-times.test.ts',
      'test/pipelines/ingest/sink/over-kafka.stack.ts',
      'test/pipelines/ingest/sink/poison.test.ts',
      'test/pipelines/runs/descendant-figures.test.ts',
      'test/pipelines/runs/filter/indexed-condition.test.ts',
      'test/contract/objects/s3.stack.ts',
      'test/infra/embedded/clickhouse/start-clickhouse.test.ts',
      'test/infra/embedded/postgres/start-postgres.test.ts',
      'test/infra/event-log/kafka/partition-consumer.test.ts',
      'test/infra/jobs/redis-returns.stack.ts',
      'test/infra/objects/s3/failures.stack.ts',
      'test/api/command-line/deployments.test.ts',
      'test/api/command-line/doctor-checks.test.ts',
      'test/api/command-line/doctor.test.ts',
      'test/api/tools/stdio.test.ts',
      'test/api/main/model-prices/costs.test.ts',
      'test/web/prompts.test.ts',
      'test/web/sign-in.test.ts',
      'test/web/system.test.ts',
      'test/web/traces.test.ts',
      'test/stack/runlake-on-shards.test.ts',
      'test/docs/chapters.test.ts',
      'test/e2e/langsmith-evals.test.ts',
    ],
    onStack: ['test/api/agent-server/runs.test.ts'],
  },
  {
    suites: [
      'test/crash/agent-crons.test.ts',
      'test/crash/backlog.test.ts',
      'test/crash/chaos.test.ts',
      'test/crash/export-servers.test.ts',
      'test/crash/organizations.test.ts',
      'test/crash/partitions.test.ts',
      'test/crash/shards.test.ts',
      'test/pipelines/exports/export-run.test.ts',
      'test/pipelines/exports/live-attempts.test.ts',
      'test/pipelines/agents/streams/over-kafka.stack.ts',
      'test/api/agent-server/access-ends.test.ts',
      'test/api/agent-server/bad-input.test.ts',
      'test/api/agent-server/deleted-workspace.test.ts',
      'test/api/agent-server/generated.test.ts',
      'test/api/agent-server/system.test.ts',
      'test/api/agent-server/traces.test.ts',
      'test/api/control-plane/quickstart.test.ts',
      'test/histories/histories.stack.ts',
      'test/pipelines/datasets/large-dataset.test.ts',
      'test/pipelines/runs/filter/random-filters.test.ts',
      'test/pipelines/runs/stats/fact-stats.test.ts',
      'test/infra/event-log/kafka/kafka-log.test.ts',
      'test/api/command-line/commands.test.ts',
      'test/api/command-line/roles.test.ts',
      'test/api/command-line/runs-and-usage.test.ts',
      'test/api/tools/alone.stack.ts',
      'test/api/tools/disconnects.test.ts',
      'test/api/main/annotation-queues/queue-items.test.ts',
      'test/api/main/billing/token-usage.test.ts',
      'test/api/main/billing/usage-limits.test.ts',
      'test/api/main/datasets/comparisons.test.ts',
      'test/api/main/hostile-requests.test.ts',
      'test/api/main/large-pages.test.ts',
      'test/web/agents.test.ts',
      'test/web/experiments.test.ts',
      'test/web/sessions.test.ts',
      'test/web/settings.test.ts',
      'test/house/start-loads.test.ts',
      'test/docs/quickstarts.test.ts',
      'test/docs/readme.test.ts',
      'test/e2e/agents-python.test.ts',
    ],
    onStack: ['test/api/agent-server/stateless.test.ts', 'test/api/agent-server/unknown-nodes.test.ts'],
  },
  {
    suites: [
      'test/crash/deployment-updates.test.ts',
      'test/crash/engines.test.ts',
      'test/crash/kill.test.ts',
      'test/crash/members.test.ts',
      'test/pipelines/exports/histories.test.ts',
      'test/pipelines/exports/large-chunks.test.ts',
      'test/pipelines/exports/scheduler.test.ts',
      'test/infra/duckdb/encoder.test.ts',
      'test/pipelines/agents/streams/follow-histories.test.ts',
      'test/pipelines/agents/workers/streaming.test.ts',
      'test/pipelines/agents/workers/worker-ends.test.ts',
      'test/api/agent-server/agent-parts.stack.ts',
      'test/api/agent-server/custom-auth-protocols.test.ts',
      'test/api/agent-server/custom-auth.test.ts',
      'test/api/agent-server/flood.test.ts',
      'test/api/agent-server/leases.test.ts',
      'test/api/agent-server/typed-graphs.test.ts',
      'test/pipelines/deployments/build-source.test.ts',
      'test/api/control-plane/proxied-agents.test.ts',
      'test/api/control-plane/sessions.test.ts',
      'test/pipelines/ingest/sink/any-order.test.ts',
      'test/pipelines/ingest/sink/repeats.test.ts',
      'test/pipelines/retention/changes.test.ts',
      'test/pipelines/runs/stats/read-stats.test.ts',
      'test/pipelines/streams/stream-histories.test.ts',
      'test/pipelines/tenants/delete-workspace-data.test.ts',
      'test/infra/embedded/start.test.ts',
      'test/api/command-line/doctor-agents.test.ts',
      'test/api/command-line/export/commands.test.ts',
      'test/api/tools/hostile.test.ts',
      'test/api/tools/limits.test.ts',
      'test/api/main/annotation-queues/annotation-queues.test.ts',
      'test/api/main/datasets/evaluate.test.ts',
      'test/api/main/runs/threads.test.ts',
      'test/web/datasets.test.ts',
      'test/web/failures.test.ts',
      'test/web/many-projects.test.ts',
      'test/web/queues.test.ts',
      'test/web/trace.test.ts',
      'test/stack/stack.test.ts',
      'test/docs/tool-samples.test.ts',
      'test/docs/traced-run.test.ts',
      'test/e2e/langchain-auth-python.test.ts',
      'test/e2e/langchain-mcp-python.test.ts',
    ],
    onStack: ['test/api/agent-server/interrupts.test.ts'],
  },
];

/**
 * Returns the part of the long suites that a whole run runs, counted from 1. RUNLAKE_TEST_PART selects it, to repeat a
 * run.
 *
 * @returns undefined if the run includes all parts.
 */
export function pickPart(): string | undefined {
  if (isFullExtent) return undefined;
  return process.env.RUNLAKE_TEST_PART ?? String(1 + Math.floor(Math.random() * parts.length));
}

/** Returns the suites that a run of `part` leaves out. */
export function listOmittedSuites(part: string | undefined): LongSuites {
  const own = parts[Number(part) - 1];
  if (part !== undefined && own === undefined) throw new Error(`There is no part ${part} of the long suites.`);
  const others = own === undefined ? [] : parts.filter((other) => other !== own);
  return { suites: others.flatMap(({ suites }) => suites), onStack: others.flatMap(({ onStack }) => onStack) };
}
