/**
 * Suites that take more than four seconds in a whole run on two CPUs, and how many seconds. The longest suites start first:
 * if one started last, one worker would be busy while all others are idle. `make test-fast` runs none of them.
 *
 * Each `make test` runs the core, `inEachRun`, and one of eight parts of the other long suites: failures, loads, random
 * histories, programs, servers, screens of the dashboard. It selects the part at random, and its last lines name all
 * suites that it leaves out. `make test-all` and a run of named suites leave out none. A missing or wrong duration only
 * makes some run longer: copy durations from the last lines of a run.
 */
import { isFullExtent } from './extent.ts';

/** Long suites of the core: ingest, queries, usage, exports, agents, tools, access to other tenants, each screen once. */
export const inEachRun: Readonly<Record<string, number>> = {
  'test/pipelines/agents/streams/gaps.test.ts': 4,
  'test/pipelines/agents/traces/child-runs.test.ts': 5,
  'test/pipelines/agents/workers/executed-nodes.test.ts': 4,
  'test/pipelines/agents/workers/isolation.test.ts': 10,
  'test/pipelines/agents/workers/stops-after-a-crash.test.ts': 3,
  'test/pipelines/deployments/deletions.test.ts': 7,
  'test/pipelines/deployments/host.test.ts': 8,
  'test/pipelines/exports/chunk-reader.test.ts': 13,
  'test/pipelines/exports/parquet-writer.test.ts': 22,
  'test/pipelines/exports/tidy-run.test.ts': 7,
  'test/pipelines/exports/worker.test.ts': 22,
  'test/pipelines/ingest/sink/deferred-events.test.ts': 5,
  'test/pipelines/ingest/sink/sink.test.ts': 21,
  'test/pipelines/ingest/sink/stored-once.test.ts': 5,
  'test/pipelines/retention/expiry.test.ts': 4,
  'test/pipelines/runs/filter/run-filter.test.ts': 15,
  'test/pipelines/runs/filtered-traces.test.ts': 4,
  'test/pipelines/runs/query-runs.test.ts': 16,
  'test/pipelines/streams/read-streams.test.ts': 7,
  'test/pipelines/usage/granular-usage.test.ts': 9,
  'test/pipelines/usage/roll-up.test.ts': 13,
  'test/pipelines/usage/run-roll-up.test.ts': 14,
  'test/infra/clickhouse/client.test.ts': 8,
  'test/infra/clickhouse/query-to-file.test.ts': 6,
  'test/infra/postgres/limited-account.test.ts': 3,
  'test/infra/postgres/pool.test.ts': 5,
  'test/infra/postgres/session-lock.test.ts': 7,
  'test/infra/telemetry/logger.test.ts': 5,
  'test/contract/event-log/in-process.test.ts': 6,
  'test/contract/event-log/kafka.test.ts': 16,
  'test/contract/objects/local.test.ts': 6,
  'test/schemas/traps.test.ts': 3,
  'test/api/agent-server/a2a.test.ts': 5,
  'test/api/agent-server/interrupts.test.ts': 7,
  'test/api/agent-server/mcp.test.ts': 6,
  'test/api/agent-server/protocol.test.ts': 19,
  'test/api/agent-server/runs.test.ts': 10,
  'test/api/agent-server/stateless.test.ts': 9,
  'test/api/agent-server/streams.test.ts': 16,
  'test/api/agent-server/threads.test.ts': 6,
  'test/api/agent-server/unknown-nodes.test.ts': 6,
  'test/api/control-plane/authenticate.test.ts': 5,
  'test/api/control-plane/providers.test.ts': 1,
  'test/api/control-plane/requests.test.ts': 1,
  'test/api/control-plane/tokens.test.ts': 5,
  'test/api/tools/http.test.ts': 9,
  'test/api/tools/pages.test.ts': 5,
  'test/api/tools/stored-data.test.ts': 5,
  'test/api/tools/tenancy.test.ts': 8,
  'test/api/tools/threads.test.ts': 6,
  'test/api/tools/tools.test.ts': 7,
  'test/api/main/attachments/attachments.test.ts': 6,
  'test/api/main/billing/billing.test.ts': 2,
  'test/api/main/bulk-exports/bulk-exports.test.ts': 3,
  'test/api/main/bulk-exports/destinations.test.ts': 4,
  'test/api/main/datasets/examples-sdk.test.ts': 3,
  'test/api/main/datasets/files.test.ts': 4,
  'test/api/main/datasets/pending-attachments.test.ts': 4,
  'test/api/main/datasets/shared-experiments.test.ts': 5,
  'test/api/main/feedback/feedback-configs.test.ts': 4,
  'test/api/main/feedback/feedback.test.ts': 18,
  'test/api/main/health/metrics.test.ts': 2,
  'test/api/main/ingest/bad-input.test.ts': 13,
  'test/api/main/ingest/overload.test.ts': 4,
  'test/api/main/ingest/read-back.test.ts': 22,
  'test/api/main/prompts/prompts.test.ts': 4,
  'test/api/main/runs/otlp-roots.test.ts': 3,
  'test/api/main/runs/query-runs.test.ts': 19,
  'test/api/main/runs/query-streams.test.ts': 4,
  'test/api/main/runs/run-shares.test.ts': 6,
  'test/api/main/runs/run-stats.test.ts': 5,
  'test/api/main/runs/shared-threads.test.ts': 6,
  'test/api/main/sessions/session-stats.test.ts': 5,
  'test/api/main/sign-in/oidc.test.ts': 4,
  'test/api/main/sign-in/session.test.ts': 5,
  'test/api/main/unknown-names.test.ts': 4,
  'test/api/main/workspaces/tags.test.ts': 4,
  'test/api/main/runs/v2-runs.test.ts': 5,
  'test/api/server/build-server.test.ts': 5,
  'test/api/server/rate-limits.test.ts': 6,
  'test/api/server/tracing.test.ts': 4,
  'test/api/tenancy.test.ts': 27,
  'test/web/screens.test.ts': 114,
  'test/docs/guide.test.ts': 6,
  'test/e2e/bulk-export.test.ts': 8,
  'test/e2e/langsmith-js.test.ts': 7,
  'test/e2e/langsmith-python.test.ts': 14,
};

/** Long suites of which each run has a part. */
export const inParts: Readonly<Record<string, number>> = {
  'test/crash/agent-crons.test.ts': 30,
  'test/crash/agent-servers.test.ts': 49,
  'test/crash/agents.test.ts': 66,
  'test/crash/backlog.test.ts': 34,
  'test/crash/chaos.test.ts': 61,
  'test/crash/deployment-updates.test.ts': 55,
  'test/crash/deployments.test.ts': 63,
  'test/crash/engines.test.ts': 15,
  'test/crash/export-servers.test.ts': 28,
  'test/crash/exports.test.ts': 74,
  'test/crash/kill.test.ts': 55,
  'test/crash/members.test.ts': 42,
  'test/crash/organizations.test.ts': 60,
  'test/crash/partitions.test.ts': 34,
  'test/crash/sdk.test.ts': 22,
  'test/crash/servers-away.test.ts': 161,
  'test/crash/servers.test.ts': 79,
  'test/crash/shards.test.ts': 9,
  'test/crash/stalls.test.ts': 55,
  'test/crash/steps.test.ts': 64,
  'test/histories/histories.stack.ts': 50,
  'test/histories/histories.test.ts': 99,
  'test/histories/regressions.test.ts': 113,
  'test/pipelines/agents/checkpoints/histories.test.ts': 7,
  'test/pipelines/agents/execute/trace-run.test.ts': 12,
  'test/pipelines/agents/streams/follow-histories.test.ts': 18,
  'test/pipelines/agents/streams/over-kafka.stack.ts': 12,
  'test/pipelines/agents/workers/hostile-graphs.test.ts': 51,
  'test/pipelines/agents/workers/message-codec.test.ts': 9,
  'test/pipelines/agents/workers/streaming.test.ts': 18,
  'test/pipelines/agents/workers/worker-ends.test.ts': 28,
  'test/pipelines/datasets/large-dataset.test.ts': 24,
  'test/pipelines/datasets/version-histories.test.ts': 10,
  'test/pipelines/deployments/build-source.test.ts': 45,
  'test/pipelines/exports/derived-values.test.ts': 9,
  'test/pipelines/exports/export-run.test.ts': 45,
  'test/pipelines/exports/histories.test.ts': 73,
  'test/pipelines/exports/in-buckets.stack.ts': 20,
  'test/pipelines/exports/large-chunks.test.ts': 22,
  'test/pipelines/exports/live-attempts.test.ts': 6,
  'test/pipelines/exports/missing-files.stack.ts': 15,
  'test/pipelines/exports/scheduler.test.ts': 28,
  'test/pipelines/exports/schedules.test.ts': 8,
  'test/pipelines/ingest/otlp/tiny-elements.test.ts': 25,
  'test/pipelines/ingest/sink/any-order.test.ts': 21,
  'test/pipelines/ingest/sink/key-times.test.ts': 9,
  'test/pipelines/ingest/sink/over-kafka.stack.ts': 12,
  'test/pipelines/ingest/sink/poison.test.ts': 15,
  'test/pipelines/ingest/sink/repeats.test.ts': 16,
  'test/pipelines/retention/changes.test.ts': 95,
  'test/pipelines/runs/descendant-figures.test.ts': 17,
  'test/pipelines/runs/filter/indexed-condition.test.ts': 10,
  'test/pipelines/runs/filter/random-filters.test.ts': 19,
  'test/pipelines/runs/find-page.test.ts': 23,
  'test/pipelines/runs/stats/fact-stats.test.ts': 49,
  'test/pipelines/runs/stats/read-stats.test.ts': 20,
  'test/pipelines/streams/stream-histories.test.ts': 18,
  'test/pipelines/tenants/delete-workspace-data.test.ts': 10,
  'test/infra/clickhouse/two-shards.test.ts': 42,
  'test/infra/docker/image.test.ts': 36,
  'test/infra/duckdb/encoder.test.ts': 37,
  'test/infra/embedded/clickhouse/start-clickhouse.test.ts': 9,
  'test/infra/embedded/data-folder.test.ts': 7,
  'test/infra/embedded/postgres/start-postgres.test.ts': 48,
  'test/infra/embedded/start.test.ts': 16,
  'test/infra/event-log/kafka/client.test.ts': 18,
  'test/infra/event-log/kafka/consumer.test.ts': 12,
  'test/infra/event-log/kafka/kafka-log.test.ts': 19,
  'test/infra/event-log/kafka/partition-consumer.test.ts': 48,
  'test/infra/event-log/kafka/producer.test.ts': 41,
  'test/infra/jobs/open-jobs.test.ts': 16,
  'test/infra/jobs/redis-returns.stack.ts': 12,
  'test/infra/migrations/migrate.test.ts': 14,
  'test/infra/objects/s3/failures.stack.ts': 12,
  'test/infra/telemetry/tracing/start-tracing.test.ts': 10,
  'test/contract/objects/s3.stack.ts': 11,
  'test/api/agent-server/access-ends.test.ts': 29,
  'test/api/agent-server/agent-parts.stack.ts': 12,
  'test/api/agent-server/answer-sizes.test.ts': 5,
  'test/api/agent-server/bad-input.test.ts': 18,
  'test/api/agent-server/custom-auth-protocols.test.ts': 9,
  'test/api/agent-server/custom-auth.test.ts': 12,
  'test/api/agent-server/deleted-workspace.test.ts': 14,
  'test/api/agent-server/deployments.test.ts': 8,
  'test/api/agent-server/fair-slots.test.ts': 9,
  'test/api/agent-server/feedback-keys.test.ts': 7,
  'test/api/agent-server/flood.test.ts': 39,
  'test/api/agent-server/generated.test.ts': 10,
  'test/api/agent-server/hostile-requests.test.ts': 84,
  'test/api/agent-server/http-app.test.ts': 16,
  'test/api/agent-server/indexed-store.test.ts': 5,
  'test/api/agent-server/leases.test.ts': 22,
  'test/api/agent-server/library-versions.test.ts': 26,
  'test/api/agent-server/project-globals.test.ts': 6,
  'test/api/agent-server/protocol-answers.test.ts': 4,
  'test/api/agent-server/protocol-failures.test.ts': 5,
  'test/api/agent-server/rate-limits.test.ts': 9,
  'test/api/agent-server/recent-assistants.test.ts': 5,
  'test/api/agent-server/remote-graph.test.ts': 4,
  'test/api/agent-server/run-metadata.test.ts': 7,
  'test/api/agent-server/sdk-versions.test.ts': 11,
  'test/api/agent-server/settings.test.ts': 10,
  'test/api/agent-server/system.test.ts': 10,
  'test/api/agent-server/traces.test.ts': 19,
  'test/api/agent-server/typed-graphs.test.ts': 43,
  'test/api/agent-server/unknown-fields.test.ts': 3,
  'test/api/agent-server/upgrade-to-http2.test.ts': 3,
  'test/api/agent-server/usage-by-user.test.ts': 6,
  'test/api/control-plane/callback.test.ts': 13,
  'test/api/control-plane/mcp-discover.test.ts': 12,
  'test/api/control-plane/proxied-agents.test.ts': 6,
  'test/api/control-plane/proxy.test.ts': 18,
  'test/api/control-plane/quickstart.test.ts': 61,
  'test/api/control-plane/sessions.test.ts': 29,
  'test/api/control-plane/sources-and-updates.test.ts': 30,
  'test/api/control-plane/several-hosts.stack.ts': 159,
  'test/api/command-line/commands.test.ts': 65,
  'test/api/command-line/deployments.test.ts': 43,
  'test/api/command-line/doctor-agents.test.ts': 17,
  'test/api/command-line/doctor-checks.test.ts': 9,
  'test/api/command-line/doctor.test.ts': 27,
  'test/api/command-line/export/commands.test.ts': 49,
  'test/api/command-line/roles.test.ts': 39,
  'test/api/command-line/prompts.test.ts': 12,
  'test/api/command-line/runs-and-usage.test.ts': 21,
  'test/api/tools/alone.stack.ts': 8,
  'test/api/tools/conformance.test.ts': 25,
  'test/api/tools/disconnects.test.ts': 18,
  'test/api/tools/hostile.test.ts': 23,
  'test/api/tools/limits.test.ts': 19,
  'test/api/tools/stdio.test.ts': 38,
  'test/api/main/annotation-queues/annotation-queues.test.ts': 8,
  'test/api/main/annotation-queues/queue-items.test.ts': 11,
  'test/api/main/billing/token-usage.test.ts': 9,
  'test/api/main/billing/usage-limits.test.ts': 26,
  'test/api/main/datasets/comparisons.test.ts': 11,
  'test/api/main/datasets/evaluate.test.ts': 6,
  'test/api/main/feedback/many-feedback.test.ts': 9,
  'test/api/main/hostile-requests.test.ts': 97,
  'test/api/main/ingest/event-loop.test.ts': 34,
  'test/api/main/ingest/large-body.stack.ts': 47,
  'test/api/main/large-pages.test.ts': 15,
  'test/api/main/model-prices/costs.test.ts': 20,
  'test/api/main/runs/threads.test.ts': 15,
  'test/web/agents.test.ts': 64,
  'test/web/datasets.test.ts': 39,
  'test/web/empty.test.ts': 40,
  'test/web/experiments.test.ts': 45,
  'test/web/exports.test.ts': 51,
  'test/web/failures.test.ts': 130,
  'test/web/hostile.test.ts': 20,
  'test/web/many-projects.test.ts': 18,
  'test/web/prompts.test.ts': 31,
  'test/web/public-prompts.test.ts': 20,
  'test/web/queues.test.ts': 30,
  'test/web/sdk-links.test.ts': 16,
  'test/web/sessions.test.ts': 23,
  'test/web/settings.test.ts': 26,
  'test/web/sign-in.test.ts': 29,
  'test/web/system.test.ts': 28,
  'test/web/threads.test.ts': 102,
  'test/web/trace.test.ts': 31,
  'test/web/traces.test.ts': 67,
  'test/web/usage.test.ts': 40,
  'test/docs/chapters.test.ts': 118,
  'test/docs/demo.test.ts': 130,
  'test/docs/quickstarts.test.ts': 89,
  'test/docs/readme.test.ts': 29,
  'test/docs/tool-samples.test.ts': 17,
  'test/docs/traced-run.test.ts': 21,
  'test/e2e/agents-python.test.ts': 102,
  'test/e2e/export-credentials.test.ts': 6,
  'test/e2e/langchain-auth-python.test.ts': 9,
  'test/e2e/langchain-mcp-python.test.ts': 12,
  'test/e2e/langsmith-evals.test.ts': 21,
  'test/e2e/langsmith-python-datasets.test.ts': 8,
  'test/e2e/opentelemetry-js.test.ts': 10,
  'test/stack/runlake-on-shards.test.ts': 13,
  'test/stack/stack.test.ts': 12,
  'test/house/start-loads.test.ts': 17,
};

/** Suites that run on embedded engines each time, but on the stack only in one part. */
export const onStackInParts: Readonly<Record<string, number>> = {
  'test/api/agent-server/interrupts.test.ts': 20,
  'test/api/agent-server/runs.test.ts': 20,
  'test/api/agent-server/stateless.test.ts': 20,
  'test/api/agent-server/streams.test.ts': 20,
  'test/api/agent-server/unknown-nodes.test.ts': 15,
  'test/api/main/feedback/feedback.test.ts': 36,
  'test/api/main/ingest/read-back.test.ts': 28,
};

const partCount = 8;

export const longSuites: readonly string[] = [...Object.entries(inEachRun), ...Object.entries(inParts)]
  .sort(([, a], [, b]) => b - a)
  .map(([name]) => name);

/**
 * Returns the part of the long suites that a whole run runs, counted from 1. RUNLAKE_TEST_PART selects it, to repeat a
 * run.
 *
 * @returns undefined if the run includes all parts.
 */
export function pickPart(): string | undefined {
  if (isFullExtent) return undefined;
  return process.env.RUNLAKE_TEST_PART ?? String(1 + Math.floor(Math.random() * partCount));
}

export interface OmittedSuites {
  readonly suites: readonly string[];
  /** Suites that are left out on the stack only. */
  readonly onStack: readonly string[];
}

/** Returns the suites that a run of `part` leaves out. */
export function listOmittedSuites(part: string | undefined): OmittedSuites {
  if (part === undefined) return { suites: [], onStack: [] };
  const own = new Set(divideIntoParts()[Number(part) - 1]);
  if (own.size === 0) throw new Error(`There is no part ${part} of the long suites.`);
  const omit = (suites: object) => Object.keys(suites).filter((name) => !own.has(name));
  return { suites: omit(inParts), onStack: omit(onStackInParts) };
}

/** Gives each suite, the longest first, to the shortest part. Crash suites come first, so that each part has some. */
function divideIntoParts(): readonly (readonly string[])[] {
  const parts = Array.from({ length: partCount }, () => ({ names: [] as string[], seconds: 0 }));
  const isCrash = (name: string) => Number(name.startsWith('test/crash/'));
  const suites = Object.entries({ ...inParts, ...onStackInParts });
  suites.sort(([name, a], [other, b]) => isCrash(other) - isCrash(name) || b - a);
  for (const [name, seconds] of suites) {
    const shortest = parts.reduce((a, b) => (b.seconds < a.seconds ? b : a));
    shortest.names.push(name);
    shortest.seconds += seconds;
  }
  return parts.map(({ names }) => names);
}
