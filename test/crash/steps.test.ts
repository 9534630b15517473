/** Kills the roles (SIGKILL) at each step of the path, with real servers. */
import { afterAll, describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { pickSome } from '../house/extent.ts';
import { askPostgres } from '../infra/embedded/processes.ts';
import { patch, post, untilAccepted } from './client.ts';
import { deadlineMs, type Pipeline, type PipelineRole } from './pipeline.ts';
import { openPipelinePool } from './pipeline-pool.ts';
import { isCommit, isProduce, says } from './protocol.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 120_000 });

interface Step {
  readonly name: string;
  readonly role: PipelineRole;
  /** Resolves when the role is blocked at the step. */
  hold(pipeline: Pipeline): Promise<void>;
  /** The requests that lead to the step; default: posts. */
  readonly requestOrder?: 'patches first';
  /** Checks the contents of the stores at that moment. */
  found?(pipeline: Pipeline): Promise<void>;
}

/** Number of runs; enough for both partitions to get some. */
const runsPerStep = 40;
const ingest = (pipeline: Pipeline) => pipeline.ways.ingest;
const rowsOf = async ({ servers }: Pipeline, table: string) =>
  Number((await askPostgres(servers.databaseUrl, `SELECT count(*)::int FROM ${table}`))[0]);

const steps: readonly Step[] = [
  {
    name: 'api before Kafka has the events',
    role: 'api',
    hold: ({ ways, topicPrefix }) => ways.api.kafka.hold('before', isProduce(`${topicPrefix}run-events`)),
  },
  {
    name: 'api after Kafka has the events, before it receives the ack',
    role: 'api',
    hold: ({ ways, topicPrefix }) => ways.api.kafka.hold('answered', isProduce(`${topicPrefix}run-events`)),
  },
  {
    name: 'sink before it queries trace locations',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('before', says(/trace_locations/)),
  },
  {
    name: 'sink before it defers an event',
    role: 'ingest',
    requestOrder: 'patches first',
    hold: (pipeline) => ingest(pipeline).postgres.hold('before', says(/INSERT INTO deferred_events/)),
  },
  {
    name: 'sink while it defers an event, before Postgres commits',
    role: 'ingest',
    requestOrder: 'patches first',
    hold: (pipeline) => ingest(pipeline).postgres.hold('answered', says(/INSERT INTO deferred_events/)),
    // Events of the other partition may be committed.
    found: async (pipeline) => expect(await rowsOf(pipeline, 'deferred_events')).toBeLessThan(runsPerStep),
  },
  {
    name: 'sink after it defers an event, before it commits the offset',
    role: 'ingest',
    requestOrder: 'patches first',
    hold: (pipeline) => ingest(pipeline).kafka.hold('before', isCommit),
    found: async (pipeline) => expect(await rowsOf(pipeline, 'deferred_events')).toBeGreaterThan(0),
  },
  {
    name: 'sink before the insert',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('before', says(/INSERT INTO run_events /)),
  },
  {
    name: 'sink during the insert, half of it sent',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('half', says(/INSERT INTO run_events /)),
  },
  {
    name: 'sink during the insert, all of it sent',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('sent', says(/INSERT INTO run_events /)),
  },
  {
    name: 'sink after the insert, before it receives the response',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('answered', says(/INSERT INTO run_events /)),
  },
  {
    name: 'sink after the insert, before it marks the hours dirty',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).postgres.hold('before', says(/INSERT INTO usage_dirty_hours/)),
  },
  {
    name: 'sink between the insert and the commit',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).kafka.hold('before', isCommit),
  },
  {
    name: 'sink after the commit, before it receives the response',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).kafka.hold('answered', isCommit),
  },
  {
    name: 'roll-up while it counts hours',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('sent', says(/INSERT INTO usage_hourly/)),
  },
  {
    name: 'roll-up after it counts hours, before it counts days',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).clickhouse.hold('before', says(/INSERT INTO usage_daily/)),
  },
  {
    name: 'roll-up after the count, before it deletes the dirty hours',
    role: 'ingest',
    hold: (pipeline) => ingest(pipeline).postgres.hold('before', says(/DELETE FROM usage_dirty_hours/)),
    found: async (pipeline) => expect(await rowsOf(pipeline, 'usage_dirty_hours')).toBeGreaterThan(0),
  },
];

describe.runIf(stackPart('kafka') && stackPart('registry'))('killed at a step', () => {
  // As many pipelines as vitest runs tests concurrently.
  const { withPipeline, close } = openPipelinePool(5);
  afterAll(close);

  test.concurrent.each(pickSome(steps, 1 / 3))('killed: $name', async (step) => {
    await withPipeline(async (pipeline, ledger) => {
      const runs = Array.from({ length: runsPerStep }, () => ledger.newRun());
      const reached = step.hold(pipeline);
      const first = step.requestOrder === 'patches first' ? patch : post;
      const sending = untilAccepted(() => first(pipeline, runs), deadlineMs);
      sending.catch(() => undefined);
      await withDeadline(reached, step.name);
      await step.found?.(pipeline);
      await pipeline.kill(step.role);
      await pipeline.start(step.role);
      const answers = await sending;
      // The blocked request got no response, so nothing was acknowledged that might not be durable.
      if (step.role === 'api') expect(answers[0]).toBeUndefined();
      if (step.requestOrder === 'patches first') await untilAccepted(() => post(pipeline, runs));
      // Check before a repeated request can replace a lost run.
      await ledger.check(pipeline);
      await untilAccepted(() => post(pipeline, runs));
      await untilAccepted(() => patch(pipeline, runs));
      await ledger.check(pipeline);
    });
  });
});

async function withDeadline(reached: Promise<void>, what: string): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`never reached: ${what}`)), deadlineMs);
  });
  await Promise.race([reached, late]).finally(() => clearTimeout(timer));
}
