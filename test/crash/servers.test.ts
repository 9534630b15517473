/** Kills, stops and starves servers of disk space under load; the test has its own servers. */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { forSuite } from '../for-suite.ts';
import { isFullExtent } from '../house/extent.ts';
import { until } from '../infra/until.ts';
import { load, patch, post, type RequestLoad, untilAccepted } from './client.ts';
import { expectAcceptedOrRetryLater, expectMostAccepted } from './honest-answers.ts';
import { Ledger } from './ledger.ts';
import { startDedicatedServers } from './own-servers.ts';
import { deadlineMs, Pipeline } from './pipeline.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

/** Value of `CLICKHOUSE_AWAY_MS`: how long ClickHouse is down under load. */
const clickhouseAwayMs = Number(process.env.CLICKHOUSE_AWAY_MS ?? (isFullExtent ? 15_000 : 5_000));
const maxResponseMs = 20_000;

describe.runIf(stackPart('kafka') && stackPart('registry') && stackPart('redis'))('servers of this file', () => {
  const ledger = new Ledger();
  let loading: RequestLoad;
  const own = forSuite(() => startDedicatedServers({ diskMiB: 768 }));
  const pipeline = forSuite(() => Pipeline.started(own.addresses));
  beforeEach(async () => {
    loading = load(pipeline, ledger, { senders: 2, batch: 5, pauseMs: 100 });
    await untilAccepts(20);
  });
  afterEach(() => loading.stop());

  const untilAccepts = async (more: number) => {
    const enough = ledger.acceptedCount + more;
    await until('runs to be accepted', () => ledger.acceptedCount >= enough, deadlineMs);
  };
  const untilRefuses = async () => {
    const before = loading.answers.length;
    const isRefused = () => loading.answers.slice(before).some((answer) => answer?.status === 503);
    await until('a request to be refused', isRefused, deadlineMs);
  };
  const watchForFailedStore = () => {
    const { length } = pipeline.process('ingest').output();
    const hasFailed = () => pipeline.process('ingest').output().slice(length).includes('a batch could not be stored');
    return () => until('an insert to fail', hasFailed, deadlineMs);
  };
  const expectAllStored = async (answersWithoutApi = 0) => {
    await untilAccepts(50);
    await loading.stop();
    const answers = loading.answers.filter((answer, at) => at >= answersWithoutApi || answer !== undefined);
    expectAcceptedOrRetryLater(answers, maxResponseMs);
    await ledger.check(pipeline);
    for (const role of ['api', 'ingest'] as const) {
      expect(pipeline.process(role).output()).not.toMatch(/unhandled|uncaught/i);
    }
  };

  test('Kafka is killed and restarted', async () => {
    await own.kafka.kill();
    await untilRefuses();
    await own.kafka.start();
    await expectAllStored();
  });

  test('ClickHouse is down under load: the API continues to accept, and the lag drains', async () => {
    await own.clickhouse.kill();
    const before = loading.answers.length;
    await pause(clickhouseAwayMs);
    const meanwhile = loading.answers.slice(before);
    expect(meanwhile.length).toBeGreaterThan(10);
    expectMostAccepted(meanwhile);
    const lag = await pipeline.metric('ingest', 'runlake_event_log_lag_events', 'run-events');
    expect(lag).toBeGreaterThan(0);
    await own.clickhouse.start();
    await expectAllStored();
    const noLag = async () => (await pipeline.metric('ingest', 'runlake_event_log_lag_events')) === 0;
    await until('the lag to drain', noLag, deadlineMs);
  });

  test('Postgres is killed and restarted', async () => {
    await own.postgres.kill();
    await pause(2_000);
    await own.postgres.start();
    expect(readFileSync(`${own.postgres.folder}.log`, 'utf8')).toMatch(/was not properly shut down/);
    await expectAllStored();
  });

  test('the registry is down at the start: a role that starts waits for it', async () => {
    await pipeline.kill('api');
    pipeline.ways.api.registry.away(true);
    const starting = pipeline.start('api');
    const namesRegistry = async () => {
      const answer = await pipeline.ask('/ready');
      return answer.status === 503 && (await answer.text()).includes('schema_registry');
    };
    await until('/ready to name the registry', () => namesRegistry().catch(() => false), deadlineMs);
    pipeline.ways.api.registry.away(false);
    await starting;
    await expectAllStored(loading.answers.length);
  });

  test('the registry is down while all roles run: runs are accepted and stored', async () => {
    // The registry stays down: no later test needs it.
    await own.registry.kill();
    await untilAccepts(100);
    await loading.stop();
    expectMostAccepted(loading.answers);
    await ledger.check(pipeline);
  });

  test.runIf(isFullExtent)('the disk of Kafka is full for a while', async ({ skip }) => {
    const { fillDisk } = own.kafka;
    if (fillDisk === undefined) return skip('no separate disk can be mounted here');
    fillDisk();
    await untilRefuses();
    own.kafka.freeDisk();
    // Kafka exits when its disk is full; restart it as an operator would.
    await own.kafka.kill();
    await own.kafka.start();
    await expectAllStored();
  });

  test.runIf(isFullExtent)('the disk of ClickHouse is full for a while', async ({ skip }) => {
    const { fillDisk } = own.clickhouse;
    if (fillDisk === undefined) return skip('no separate disk can be mounted here');
    const failed = watchForFailedStore();
    fillDisk();
    await failed();
    own.clickhouse.freeDisk();
    await expectAllStored();
  });

  test.runIf(isFullExtent)('the disk of Postgres is full for a while', async ({ skip }) => {
    const { fillDisk } = own.postgres;
    if (fillDisk === undefined) return skip('no separate disk can be mounted here');
    const failed = watchForFailedStore();
    fillDisk();
    // Patches of unknown traces are deferred in Postgres.
    const deferred = Array.from({ length: 20 }, () => ledger.newRun());
    for (const entry of deferred) entry.outputs = 'y'.repeat(300_000);
    await untilAccepted(() => patch(pipeline, deferred));
    await failed();
    own.postgres.freeDisk();
    await untilAccepted(() => post(pipeline, deferred));
    await expectAllStored();
  });

  test('Redis is killed and restarted: a deletion that was requested meanwhile is done', async () => {
    await loading.stop();
    const gone = new Ledger();
    const runsToDelete = Array.from({ length: 20 }, () => ({ ...gone.newRun(), project: 'doomed' }));
    await untilAccepted(() => post(pipeline, runsToDelete));
    await pipeline.settled();
    const projects = (await (await pipeline.ask('/sessions?limit=100')).json()) as { id: string; name: string }[];
    const { id } = projects.find(({ name }) => name === 'doomed') as { id: string };
    await own.redis.kill();
    const deleting = pipeline.ask(`/sessions/${id}`, undefined, 'DELETE').catch(() => undefined);
    await pause(1_000);
    await own.redis.start();
    await deleting;
    const remaining = async () =>
      Number(await own.clickhouseRows("SELECT count() FROM runs FINAL WHERE name = 'of doomed'"));
    await until('runs of the deleted project to be deleted', async () => (await remaining()) === 0, deadlineMs);
  });
});
