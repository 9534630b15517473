/**
 * Long suites about failures, loads, random histories, programs and servers. Each `make test` runs one third of them,
 * selected at random, and its last lines name all others. `make test-all` and a run of named suites leave out none.
 * Each third takes about the same time, and includes crashes during ingest, exports and graph runs.
 */
import { isFullExtent } from './extent.ts';

export interface Third {
  readonly suites: readonly string[];
  /** Suites that run on the stack only in this third; on embedded engines they run each time. */
  readonly onStack: readonly string[];
}

export const thirds: readonly Third[] = [
  {
    suites: [
      'test/crash/servers.test.ts',
      'test/crash/steps.test.ts',
      'test/crash/members.test.ts',
      'test/crash/kill.test.ts',
      'test/crash/exports.test.ts',
      'test/pipelines/exports/large-chunks.test.ts',
      'test/infra/duckdb/encoder.test.ts',
      'test/crash/agent-servers.test.ts',
      'test/pipelines/agents/workers/hostile-graphs.test.ts',
      'test/pipelines/agents/workers/worker-ends.test.ts',
      'test/api/agent-server/access-ends.test.ts',
      'test/histories/regressions.test.ts',
      'test/pipelines/streams/stream-histories.test.ts',
      'test/infra/event-log/kafka/producer.test.ts',
      'test/api/main/hostile-requests.test.ts',
      'test/api/main/ingest/large-body.stack.ts',
      'test/infra/clickhouse/two-shards.test.ts',
      'test/infra/embedded/postgres/start-postgres.test.ts',
      'test/api/command-line/roles.test.ts',
      'test/infra/docker/image.test.ts',
    ],
    onStack: ['test/api/agent-server/streams.test.ts', 'test/api/main/ingest/read-back.test.ts'],
  },
  {
    suites: [
      'test/crash/servers-away.test.ts',
      'test/crash/stalls.test.ts',
      'test/crash/sdk.test.ts',
      'test/crash/engines.test.ts',
      'test/pipelines/exports/in-buckets.stack.ts',
      'test/contract/objects/s3.stack.ts',
      'test/infra/objects/s3/failures.stack.ts',
      'test/crash/agents.test.ts',
      'test/crash/deployments.test.ts',
      'test/api/agent-server/flood.test.ts',
      'test/api/agent-server/leases.test.ts',
      'test/api/agent-server/http-app.test.ts',
      'test/api/agent-server/agent-parts.stack.ts',
      'test/histories/histories.test.ts',
      'test/infra/event-log/kafka/partition-consumer.test.ts',
      'test/infra/jobs/redis-returns.stack.ts',
      'test/api/main/ingest/event-loop.test.ts',
      'test/pipelines/ingest/sink/over-kafka.stack.ts',
      'test/api/command-line/doctor.test.ts',
      'test/stack/stack.test.ts',
      'test/docs/chapters.test.ts',
    ],
    onStack: [
      'test/api/agent-server/interrupts.test.ts',
      'test/api/agent-server/runs.test.ts',
      'test/pipelines/exports/scheduler.test.ts',
    ],
  },
  {
    suites: [
      'test/crash/chaos.test.ts',
      'test/crash/organizations.test.ts',
      'test/crash/partitions.test.ts',
      'test/crash/backlog.test.ts',
      'test/crash/export-servers.test.ts',
      'test/crash/shards.test.ts',
      'test/pipelines/exports/live-attempts.test.ts',
      'test/pipelines/exports/histories.test.ts',
      'test/api/command-line/export/commands.test.ts',
      'test/crash/agent-crons.test.ts',
      'test/pipelines/agents/streams/follow-histories.test.ts',
      'test/pipelines/agents/streams/over-kafka.stack.ts',
      'test/api/agent-server/typed-graphs.test.ts',
      'test/api/agent-server/generated.test.ts',
      'test/histories/histories.stack.ts',
      'test/pipelines/ingest/sink/any-order.test.ts',
      'test/pipelines/ingest/otlp/tiny-elements.test.ts',
      'test/infra/event-log/kafka/kafka-log.test.ts',
      'test/api/agent-server/hostile-requests.test.ts',
      'test/api/command-line/doctor-agents.test.ts',
      'test/infra/embedded/clickhouse/start-clickhouse.test.ts',
      'test/docs/demo.test.ts',
      'test/e2e/agents-python.test.ts',
    ],
    onStack: [
      'test/api/agent-server/unknown-nodes.test.ts',
      'test/api/agent-server/stateless.test.ts',
      'test/api/main/feedback/feedback.test.ts',
      'test/infra/jobs/open-jobs.test.ts',
    ],
  },
];

/**
 * Returns the third that a whole run runs: 1, 2 or 3. RUNLAKE_TEST_THIRD selects it, to repeat a run.
 *
 * @returns undefined if the run includes all thirds.
 */
export function pickThird(): string | undefined {
  if (isFullExtent) return undefined;
  return process.env.RUNLAKE_TEST_THIRD ?? String(1 + Math.floor(Math.random() * thirds.length));
}

/** Returns the suites that a run of `third` leaves out. */
export function listOmittedSuites(third: string | undefined): Third {
  const own = thirds[Number(third) - 1];
  if (third !== undefined && own === undefined) throw new Error(`There is no third ${third} of the long suites.`);
  const others = own === undefined ? [] : thirds.filter((other) => other !== own);
  return { suites: others.flatMap(({ suites }) => suites), onStack: others.flatMap(({ onStack }) => onStack) };
}
