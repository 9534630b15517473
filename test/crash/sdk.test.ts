/** The stock SDK while Kafka is down: no run is lost as long as the SDK retries; later refusals are counted. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Client } from 'langsmith';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { pythonEnvironment } from '../e2e/python/environment.ts';
import { stackPart } from '../engines/stack.ts';
import { forSuite } from '../for-suite.ts';
import { until } from '../infra/until.ts';
import { testSettings } from '../test-settings.ts';
import { post } from './client.ts';
import { Ledger } from './ledger.ts';
import { openOnStack } from './on-stack.ts';
import { deadlineMs } from './pipeline.ts';
import { createdRun } from './sdk-load.ts';

vi.setConfig({ testTimeout: 240_000, hookTimeout: 300_000 });

/** With defaults, the JavaScript SDK uses up its retries after at least about 15 s. */
const outageMs = 8_000;
const script = fileURLToPath(new URL('../e2e/python/send_runs.py', import.meta.url));
const python = pythonEnvironment();

describe.runIf(stackPart('kafka') && stackPart('registry'))('the stock SDK and an outage of Kafka', () => {
  const ledger = new Ledger();
  const opened = forSuite(() => openOnStack(testSettings({ publishTimeoutMs: 1_000 })));
  // The SDK logs every failure to the console.
  beforeEach(() => void vi.spyOn(console, 'error').mockImplementation(() => {}));
  beforeEach(() => void vi.spyOn(console, 'warn').mockImplementation(() => {}));
  afterEach(() => vi.restoreAllMocks());
  const rejected = () => opened.pipeline.metric('api', 'runlake_runs_rejected_total', 'EVENT_LOG_UNAVAILABLE');
  const sendBatch = async (client: Client, count: number) => {
    const entries = Array.from({ length: count }, () => ledger.newRun());
    for (const entry of entries) await client.createRun(createdRun(entry));
    return entries;
  };

  test('an outage shorter than the retries of the SDK: the SDK delivers when Kafka is back', async () => {
    const { pipeline } = opened;
    const client = new Client({ apiUrl: pipeline.url, apiKey: pipeline.apiKey });
    pipeline.ways.api.kafka.away(true);
    const backAtMs = performance.now() + outageMs;
    const entries = await sendBatch(client, 50);
    await until('the batch to be refused twice', async () => (await rejected()) >= 2 * entries.length, deadlineMs);
    await pause(backAtMs - performance.now());
    const probe = await post(pipeline, [ledger.newRun()]);
    expect(probe).toMatchObject({ status: 503 });
    expect(probe?.retryAfterSeconds).toBeGreaterThan(0);
    pipeline.ways.api.kafka.away(false);
    await client.awaitPendingTraceBatches();
    for (const entry of entries) entry.accepted = true;
    await ledger.check(pipeline);
  });

  test.skipIf('missing' in python)(
    'an outage shorter than the retries of the Python SDK: the SDK delivers, too',
    async () => {
      const { pipeline } = opened;
      const before = await rejected();
      const entries = Array.from({ length: 20 }, () => ledger.newRun());
      pipeline.ways.api.kafka.away(true);
      const program = 'python' in python ? python.python : '';
      const child = spawn(program, [script], {
        env: { PATH: process.env.PATH, LANGSMITH_ENDPOINT: pipeline.url, LANGSMITH_API_KEY: pipeline.apiKey },
        stdio: ['pipe', 'ignore', 'inherit'],
      });
      child.stdin?.end(JSON.stringify(entries.map(createdRun)));
      const exited = once(child, 'exit');
      await until('a batch to be refused', async () => (await rejected()) > before, deadlineMs);
      pipeline.ways.api.kafka.away(false);
      expect((await exited)[0]).toBe(0);
      for (const entry of entries) entry.accepted = true;
      await ledger.check(pipeline);
    },
  );

  test('an outage longer than the retries of the SDK, here one: the SDK gives up, the API counts each refusal, and later runs are accepted', async () => {
    const { pipeline } = opened;
    const withOneRetry = new Client({
      apiUrl: pipeline.url,
      apiKey: pipeline.apiKey,
      callerOptions: { maxRetries: 1 },
    });
    const before = await rejected();
    pipeline.ways.api.kafka.away(true);
    const lost = await sendBatch(withOneRetry, 20);
    await withOneRetry.awaitPendingTraceBatches();
    expect(await rejected()).toBeGreaterThanOrEqual(before + 2 * lost.length);
    pipeline.ways.api.kafka.away(false);
    const client = new Client({ apiUrl: pipeline.url, apiKey: pipeline.apiKey });
    const entries = await sendBatch(client, 20);
    await client.awaitPendingTraceBatches();
    for (const entry of entries) entry.accepted = true;
    await ledger.check(pipeline);
  });
});
