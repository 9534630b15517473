/** Connections between roles and servers stall for longer than all their timeouts, without being closed. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { allocateRedisDatabase } from '../engines/own-servers.ts';
import { stackPart } from '../engines/stack.ts';
import { pickSome } from '../house/extent.ts';
import { askClickhouse } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { testSettings } from '../test-settings.ts';
import { load, post, postAlone, untilAccepted } from './client.ts';
import { openFaultProxy } from './fault-proxy.ts';
import { expectAcceptedOrRetryLater, expectMostAccepted } from './honest-answers.ts';
import { type Entry, Ledger } from './ledger.ts';
import { openOnStack } from './on-stack.ts';
import { deadlineMs, type Pipeline, type PipelineRole, type ServerProxies } from './pipeline.ts';
import { openPipelinePool } from './pipeline-pool.ts';
import { isCommit, says } from './protocol.ts';

vi.setConfig({ testTimeout: 300_000 });

interface Stall {
  readonly name: string;
  readonly role: PipelineRole;
  readonly way: keyof ServerProxies;
  /** Duration of the stall, longer than the timeouts in `name`. */
  readonly stallMs: number;
  /** Responses to posts: some are 503, or all are 202. */
  readonly postOutcome: 'refused' | 'accepted';
  /** Sends further requests during the stall; `known` was posted before. */
  readonly meanwhile?: (pipeline: Pipeline, known: Entry) => Promise<void>;
  /** Whether the member keeps its partitions, because it sends heartbeats during a slow insert. */
  readonly keepsPartitions?: true;
}

const limits = testSettings({ publishTimeoutMs: 2_000, queryTimeoutMs: 3_000 });

const stalls: readonly Stall[] = [
  {
    name: 'api and Kafka, longer than the publish timeout',
    role: 'api',
    way: 'kafka',
    stallMs: 8_000,
    postOutcome: 'refused',
  },
  {
    name: 'api and Postgres, longer than the query timeout',
    role: 'api',
    way: 'postgres',
    stallMs: 8_000,
    postOutcome: 'refused',
  },
  {
    name: 'api and ClickHouse, longer than the query timeout',
    role: 'api',
    way: 'clickhouse',
    stallMs: 8_000,
    postOutcome: 'accepted',
    meanwhile: readAndPatchWithoutClickhouse,
  },
  {
    name: 'api and the schema registry, longer than the request timeout',
    role: 'api',
    way: 'registry',
    stallMs: 8_000,
    postOutcome: 'accepted',
  },
  {
    name: 'sink and Kafka, longer than the session and request timeouts',
    role: 'ingest',
    way: 'kafka',
    stallMs: 22_000,
    postOutcome: 'accepted',
  },
  {
    name: 'sink and ClickHouse, longer than the insert timeout',
    role: 'ingest',
    way: 'clickhouse',
    stallMs: 12_000,
    postOutcome: 'accepted',
    keepsPartitions: true,
  },
  {
    name: 'sink and Postgres, longer than the query timeout',
    role: 'ingest',
    way: 'postgres',
    stallMs: 12_000,
    postOutcome: 'accepted',
  },
];

/**
 * Checks that reads, and patches of runs that only ClickHouse knows, are refused with Retry-After, and that patches of
 * a run that was recently sent in a single post are accepted.
 */
async function readAndPatchWithoutClickhouse(pipeline: Pipeline, known: Entry): Promise<void> {
  known.outputs = `out of ${known.id}`;
  const body = { outputs: { text: known.outputs } };
  const startedAtMs = performance.now();
  const refused = [
    () => pipeline.ask(`/runs/${known.id}`),
    () => pipeline.ask('/runs/query', { id: [known.id] }),
    () => pipeline.ask(`/runs/${randomUUID()}`, body, 'PATCH'),
  ];
  const [taken, ...answers] = await Promise.all(
    [() => pipeline.ask(`/runs/${known.id}`, body, 'PATCH'), ...refused].map((ask) => ask()),
  );
  expect(answers.map(({ status }) => status)).toEqual([503, 503, 503]);
  for (const { headers } of answers) expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  expect(performance.now() - startedAtMs).toBeLessThan(maxResponseMs);
  expect(taken?.status).toBe(202);
  known.patchAccepted = true;
}

/**
 * Responses that are lost, each on a connection that stays open without further responses, while other connections to
 * the same server work.
 */
const lostResponses: readonly {
  readonly name: string;
  readonly way: keyof ServerProxies;
  readonly recognises: (message: Buffer) => boolean;
}[] = [
  { name: 'a commit of the sink', way: 'kafka', recognises: isCommit },
  { name: 'an insert of the sink', way: 'clickhouse', recognises: says(/INSERT INTO run_events /) },
  { name: 'an insert of dirty hours', way: 'postgres', recognises: says(/INSERT INTO usage_dirty_hours/) },
];
/**
 * The longest request timeout is 15 s, and a group may wait as long for a member that it considers dead: 20 s on an
 * idle machine. The remaining time is for a machine that runs other suites at the same time.
 */
const maxRecoveryMs = 180_000;
const maxResponseMs = 15_000;

describe.runIf(stackPart('kafka') && stackPart('registry') && stackPart('redis'))('the network stalls', () => {
  const { withPipeline, close: closePool } = openPipelinePool(4, limits);
  afterAll(closePool);

  test.concurrent.each(pickSome(stalls, 1 / 3))('stalled between $name', async (stall) => {
    const { role, way, stallMs, postOutcome, meanwhile, keepsPartitions } = stall;
    await withPipeline(async (pipeline, ledger) => {
      const known = ledger.newRun();
      await untilAccepted(() => postAlone(pipeline, known));
      const enough = ledger.acceptedCount + 50;
      const loading = load(pipeline, ledger, { senders: 2, batch: 5, pauseMs: 100 });
      await until('runs to be accepted', () => ledger.acceptedCount >= enough, deadlineMs);
      const assigned = () => pipeline.metric('ingest', 'runlake_event_log_assignments_total', 'run-events');
      await until('partitions to be assigned', async () => (await assigned()) >= 2, deadlineMs);
      const assignedBefore = await assigned();
      const stalled = pipeline.ways[role][way];
      stalled.stall(true);
      const before = loading.answers.length;
      await Promise.all([pause(stallMs), meanwhile?.(pipeline, known)]);
      // No client waits forever: there are responses during the stall.
      expect(loading.answers.length).toBeGreaterThan(before);
      const then = ledger.acceptedCount;
      stalled.stall(false);
      await until('runs to be accepted again', () => ledger.acceptedCount >= then + 50, deadlineMs);
      await loading.stop();
      expectAcceptedOrRetryLater(loading.answers, maxResponseMs);
      if (postOutcome === 'accepted') expectMostAccepted(loading.answers);
      else expect(loading.answers.some((answer) => answer?.status === 503)).toBe(true);
      expect(await ledger.check(pipeline)).toBeGreaterThan(0);
      if (keepsPartitions) expect(await assigned()).toBe(assignedBefore);
      expect(pipeline.process(role).output()).not.toMatch(/unhandled|uncaught/i);
    });
  });

  test.concurrent('stalled between all roles and Redis: ingest continues, a job is refused in time and done afterwards', async () => {
    const redis = await allocateRedisDatabase(stackPart('redis')?.url ?? '');
    const proxiedUrl = new URL(redis.url);
    const way = await openFaultProxy([{ host: proxiedUrl.hostname, port: Number(proxiedUrl.port) }]);
    proxiedUrl.host = `127.0.0.1:${way.ports[0]}`;
    const { pipeline, close } = await openOnStack({ ...limits, RUNLAKE_REDIS_URL: proxiedUrl.href });
    try {
      const gone = new Ledger();
      const runsToDelete = Array.from({ length: 20 }, () => ({ ...gone.newRun(), project: 'doomed' }));
      await untilAccepted(() => post(pipeline, runsToDelete));
      await pipeline.settled();
      const projects = (await (await pipeline.ask('/sessions?limit=100')).json()) as { id: string; name: string }[];
      const { id } = projects.find(({ name }) => name === 'doomed') as { id: string };
      const ledger = new Ledger();
      const loading = load(pipeline, ledger, { senders: 2, batch: 5, pauseMs: 100 });
      way.stall(true);
      const startedAtMs = performance.now();
      const answer = await pipeline.ask(`/sessions/${id}`, undefined, 'DELETE');
      expect(answer.status).toBe(503);
      expect(performance.now() - startedAtMs).toBeLessThan(maxResponseMs);
      way.stall(false);
      await until('runs to be accepted', () => ledger.acceptedCount >= 50, deadlineMs);
      await loading.stop();
      expectMostAccepted(loading.answers);
      const remaining = () =>
        askClickhouse(pipeline.servers.clickhouseUrl, "SELECT count() FROM runs FINAL WHERE name = 'of doomed'");
      await until('runs of the deleted project to be deleted', async () => (await remaining()) === '0', deadlineMs);
    } finally {
      await close();
      await way.close();
      await redis.clear();
    }
  });

  test.concurrent.each(pickSome(lostResponses, 1 / 3))(
    'the response to $name never arrives',
    async ({ way, recognises }) => {
      await withPipeline(async (pipeline, ledger) => {
        const runs = Array.from({ length: 20 }, () => ledger.newRun());
        const lost = pipeline.ways.ingest[way].hold('sent', recognises);
        await untilAccepted(() => post(pipeline, runs));
        await lost;
        const lostAtMs = performance.now();
        const more = Array.from({ length: 20 }, () => ledger.newRun());
        await untilAccepted(() => post(pipeline, more));
        await ledger.check(pipeline);
        expect(performance.now() - lostAtMs).toBeLessThan(maxRecoveryMs);
      });
    },
  );
});
