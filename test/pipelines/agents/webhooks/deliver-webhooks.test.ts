import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { type GuardOptions, openGuardedAgents } from '../../../../infra/network/guarded-agents.ts';
import { readDatabaseClock } from '../../../../infra/postgres/clock.ts';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import type { RunKwargs } from '../../../../pipelines/agents/runs/run.ts';
import {
  claimWebhooks,
  type DeliveryDeps,
  deleteOldWebhooks,
  deliverWebhook,
  deriveWebhookSecret,
  getMsToNextWebhook,
  startWebhooks,
} from '../../../../pipelines/agents/webhooks/deliver-webhooks.ts';
import { buildWebhookRules, recordWebhook } from '../../../../pipelines/agents/webhooks/webhook-rules.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';
import { makeAgentRows } from '../crons/agent-rows.ts';

interface ReceivedRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const secret = deriveWebhookSecret('the key of this test', randomUUID());
const stores = forSuite(() => freshStores());
const other = forSuite(() => openDatabase({ url: stores.databaseUrl, logger, timeoutMs: 10_000 }));
let receiver: Server;
let received: ReceivedRequest[];
let answer: (response: ServerResponse) => void;
let rows: Awaited<ReturnType<typeof makeAgentRows>>;
let clock: Date;
let closers: (() => void)[];

beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part);
    received.push({ path: request.url ?? '', headers: request.headers, body: Buffer.concat(parts).toString() });
    answer(response);
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
});
afterAll(() => {
  receiver?.closeAllConnections();
  receiver?.close();
});
beforeEach(async () => {
  rows = await makeAgentRows(stores.database);
  received = [];
  answer = (response) => void response.end();
  clock = new Date(Date.now() + 1_000);
  closers = [];
});
afterEach(() => {
  for (const close of closers) close();
});

const port = () => (receiver.address() as AddressInfo).port;
const ownUrl = () => `http://127.0.0.1:${port()}`;
const getHookUrl = () => `${ownUrl()}/hook`;

function deps(changes: Partial<DeliveryDeps> = {}, guard: Partial<GuardOptions> = {}): DeliveryDeps {
  const refuse: GuardOptions['refuse'] = (host, { about }) =>
    runlakeError('WEBHOOK_INVALID', { url: host, reason: about });
  const agents = openGuardedAgents({ allowPrivate: true, maxConnections: 4, refuse, ...guard });
  closers.push(() => agents.close());
  return {
    database: stores.database,
    deploymentId: rows.deploymentId,
    rules: buildWebhookRules({
      settings: { headers: { 'X-Team': 'a', 'Content-Type': 'text/plain' } },
      allowPrivate: true,
    }),
    secret,
    ownUrl: ownUrl(),
    timeoutMs: 5_000,
    agents,
    logger,
    now: async () => clock.getTime(),
    ...changes,
  };
}

/** Ends a run with a webhook and deletes the run at once, like a stateless run. */
async function endRun(webhook: string | undefined, ended: { values?: string; error?: string } = {}): Promise<string> {
  const runId = randomUUID();
  const kwargs = { input: 'a\u0000b', config: {}, ...(webhook !== undefined && { webhook }) } as RunKwargs;
  await stores.database.transaction(async (tx) => {
    await tx.execute(
      `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, status, kwargs, metadata, started_at, ended_at)
       VALUES ($1, $2, $3, $4, 'echo', $5, $6, '{"team":"a"}', now(), now())`,
      [
        rows.deploymentId,
        rows.threadId,
        runId,
        rows.assistantId,
        ended.error === undefined ? 'success' : 'error',
        kwargs,
      ],
    );
    await recordWebhook(tx, { deploymentId: rows.deploymentId, runId, kwargs, ...ended });
    await tx.execute('DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = $2', [rows.deploymentId, runId]);
  });
  return runId;
}

async function deliverDue(delivery: DeliveryDeps): Promise<number> {
  const claimed = await claimWebhooks(delivery, 100);
  await Promise.all(claimed.map((one) => deliverWebhook(delivery, one)));
  return claimed.length;
}

const readWebhookState = async (runId: string) => {
  const [row] = await stores.database.query<{
    attempts: number;
    due_at: string;
    given_up_at: string | null;
    last_error: string;
  }>('SELECT attempts, due_at, given_up_at, last_error FROM agents.webhooks WHERE deployment_id = $1 AND run_id = $2', [
    rows.deploymentId,
    runId,
  ]);
  if (row === undefined) return 'gone';
  const { attempts, due_at, given_up_at, last_error } = row;
  const state = given_up_at !== null ? 'given up' : (Date.parse(due_at) - clock.getTime()) / 1_000;
  return [attempts, state, last_error] as const;
};

describe('a webhook', () => {
  it('reports the end of the run once, with a signature', async () => {
    const runId = await endRun(getHookUrl(), { values: '{"n": 12345678901234567890, "text": "\\u0000"}' });
    await endRun(undefined);
    expect([await deliverDue(deps()), await deliverDue(deps())]).toEqual([1, 0]);
    expect(received).toHaveLength(1);
    const [{ path, headers, body }] = received as [ReceivedRequest];
    expect([path, headers['content-type'], headers['x-team']]).toEqual(['/hook', 'application/json', 'a']);
    const [, seconds = '', signature] =
      /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['x-runlake-signature'])) ?? [];
    expect(signature).toBe(createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex'));
    expect(Number(seconds)).toBe(Math.floor(clock.getTime() / 1_000));
    expect(body).toContain('12345678901234567890');
    expect(JSON.parse(body)).toEqual({
      run_id: runId,
      thread_id: rows.threadId,
      assistant_id: rows.assistantId,
      created_at: expect.stringMatching(/^\d{4}-/),
      updated_at: expect.stringMatching(/^\d{4}-/),
      status: 'success',
      metadata: { team: 'a' },
      kwargs: { config: {}, input: 'a\u0000b', webhook: getHookUrl() },
      multitask_strategy: 'enqueue',
      run_started_at: expect.stringMatching(/^\d{4}-/),
      run_ended_at: expect.stringMatching(/^\d{4}-/),
      webhook_sent_at: clock.toISOString(),
      values: { n: expect.any(Number), text: '\u0000' },
      error: null,
    });
    expect(await readWebhookState(runId)).toBe('gone');
  });

  it('reports failures, also to a path of this server', async () => {
    await endRun('/own?x=1', { error: 'it broke\0' });
    await deliverDue(deps());
    expect(received.map(({ path, body }) => [path, JSON.parse(body)])).toEqual([
      ['/own?x=1', expect.objectContaining({ status: 'error', error: 'it broke', values: null })],
    ]);
  });

  it.each([
    [201, 'gone'],
    [404, [1, 'given up', 'it answered 404']],
    [302, [1, 'given up', 'it answered 302']],
    [408, [1, 5, 'it answered 408']],
    [429, [1, 5, 'it answered 429']],
    [500, [1, 5, 'it answered 500']],
    [503, [1, 5, 'it answered 503']],
  ])('handles the answer %i', async (status, expected) => {
    answer = (response) => void response.writeHead(status, { location: `${ownUrl()}/elsewhere` }).end();
    const runId = await endRun(getHookUrl());
    await deliverDue(deps());
    expect(await readWebhookState(runId)).toEqual(expected);
    expect(received.map(({ path }) => path)).toEqual(['/hook']);
  });

  it.each<[string, (response: ServerResponse) => void, unknown]>([
    ['is not answered', () => undefined, [1, 5, 'it did not answer within 300 ms']],
    ['is disconnected', (response) => void response.socket?.destroy(), [1, 5, 'the connection failed (ECONNRESET)']],
    [
      'is answered with an endless body',
      (response) => void response.writeHead(200).write('x'.repeat(1_000_000)),
      'gone',
    ],
  ])('handles a request that %s', async (_, behaviour, expected) => {
    answer = behaviour;
    const runId = await endRun(getHookUrl());
    await deliverDue(deps({ timeoutMs: 300 }));
    expect(await readWebhookState(runId)).toEqual(expected);
  });

  it('is not sent if its host resolves to a forbidden address', async () => {
    const runId = await endRun(`http://hooks.example:${port()}/`);
    const lookup = ((_name: string, _options: object, callback: (error: null, found: unknown) => void) =>
      callback(null, [{ address: '127.0.0.1', family: 4 }])) as unknown as NonNullable<GuardOptions['lookup']>;
    await deliverDue(deps({}, { allowPrivate: false, lookup }));
    expect(await readWebhookState(runId)).toEqual([1, 'given up', expect.stringContaining('a loopback address')]);
    expect(received).toEqual([]);
  });

  it('is not sent if the rules have become stricter', async () => {
    const runId = await endRun(getHookUrl());
    await deliverDue(deps({ rules: buildWebhookRules({ allowPrivate: false }) }));
    expect(await readWebhookState(runId)).toEqual([1, 'given up', expect.stringContaining('loopback')]);
    expect(received).toEqual([]);
  });

  it('is tried ten times within about an hour, then given up, and deleted a day later', async () => {
    answer = (response) => void response.writeHead(500).end();
    const runId = await endRun(getHookUrl());
    const startMs = clock.getTime();
    const delivery = deps();
    let lastMs = 0;
    for (let due: number | undefined = 0; due !== undefined; due = await getMsToNextWebhook(delivery)) {
      lastMs = clock.getTime() + due - startMs;
      clock = new Date(startMs + lastMs);
      expect(await deliverDue(delivery)).toBe(1);
    }
    expect([received.length, await readWebhookState(runId)]).toEqual([10, [10, 'given up', 'it answered 500']]);
    expect([lastMs > 50 * 60_000, lastMs < 70 * 60_000]).toEqual([true, true]);
    for (const [hours, state] of [
      [23, expect.anything()],
      [2, 'gone'],
    ] as const) {
      clock = new Date(clock.getTime() + hours * 3_600_000);
      await deleteOldWebhooks(delivery);
      expect(await readWebhookState(runId)).toEqual(state);
    }
  });

  it.each([
    ...[
      'https:hang.test/x',
      'https:\\\\hang.test',
      'HTTPS://Hang.test',
      'https://hang.test:443',
      'https://1@hang.test',
    ],
    ...['https://1:2@hang.test/@x', 'https://1@2@hang.test?@', 'https://hang.test#a@b'],
  ])('to %s is one for https://hang.test', async (webhook) => {
    await endRun(webhook);
    expect(await claimWebhooks(deps(), 1, ['https://hang.test'])).toEqual([]);
    expect(await claimWebhooks(deps(), 1)).toMatchObject([{ receiver: 'https://hang.test' }]);
  });

  it.each([
    ['/hook', ''],
    ['http://hang.test', 'http://hang.test'],
    ['https://hang.test:444/', 'https://hang.test:444'],
  ])('to %s is one for "%s"', async (webhook, expected) => {
    await endRun(webhook);
    expect(await claimWebhooks(deps(), 1)).toMatchObject([{ receiver: expected }]);
  });

  it('is given up after a day without an attempt', async () => {
    const runId = await endRun(getHookUrl());
    for (const [hours, state] of [
      [23, [0, expect.any(Number), null]],
      [2, [0, 'given up', 'it was not delivered within a day']],
      [23, [0, 'given up', 'it was not delivered within a day']],
      [2, 'gone'],
    ] as const) {
      clock = new Date(clock.getTime() + hours * 3_600_000);
      await deleteOldWebhooks(deps());
      expect(await readWebhookState(runId)).toEqual(state);
    }
    expect(await claimWebhooks(deps(), 1)).toEqual([]);
  });

  it('is claimed by one process, and by another after that one died', async () => {
    const runs = await Promise.all(Array.from({ length: 12 }, () => endRun(getHookUrl())));
    clock = new Date(Date.now() + 1_000);
    const [first, second] = [deps(), deps({ database: other })];
    const claimed = (await Promise.all([first, second, first, second].map((some) => claimWebhooks(some, 5)))).flat();
    const ids = claimed.map(({ run_id }) => run_id);
    expect([ids.length, new Set(ids).size]).toEqual([12, 12]);
    expect(await deliverDue(second)).toBe(0);
    clock = new Date(clock.getTime() + 16_000);
    expect(await claimWebhooks(second, 100)).toHaveLength(12);
    // A process whose claim expired delivers late: its result is ignored.
    answer = (response) => void response.writeHead(404).end();
    await deliverWebhook(first, claimed[0]!);
    expect(await readWebhookState(claimed[0]!.run_id)).toEqual([2, 15, null]);
    expect(runs).toContain(claimed[0]!.run_id);
  });

  it.each([
    ['behind', -1],
    ['ahead', 1],
  ])('uses the clock of Postgres if the clock of the process is %s', async (_, days) => {
    const withDatabaseClock = deps({ now: readDatabaseClock });
    answer = (response) => void response.writeHead(500).end();
    const runId = await endRun(getHookUrl());
    const startMs = Date.now();
    vi.useFakeTimers({ toFake: ['Date'], now: startMs + days * 86_400_000 });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    expect(await deliverDue(withDatabaseClock)).toBe(1);
    const sentAtMs = Date.parse(JSON.parse(received[0]?.body ?? '{}').webhook_sent_at);
    expect(Math.abs(sentAtMs - startMs)).toBeLessThan(60_000);
    const [row] = await stores.database.query<{ seconds: number }>(
      'SELECT extract(epoch FROM due_at - now())::float8 AS seconds FROM agents.webhooks WHERE run_id = $1',
      [runId],
    );
    expect(row?.seconds).toBeGreaterThan(0);
    // The clock is read in whole milliseconds and rounded up.
    expect(row?.seconds).toBeLessThanOrEqual(5.001);
    expect(await getMsToNextWebhook(withDatabaseClock)).toBeLessThanOrEqual(5_000);
    await stores.database.execute(
      "UPDATE agents.webhooks SET given_up_at = now() - interval '23 hours' WHERE run_id = $1",
      [runId],
    );
    await deleteOldWebhooks(withDatabaseClock);
    expect(await readWebhookState(runId)).not.toBe('gone');
  });

  it('is sent in the background after it is recorded', async () => {
    const { database, deploymentId, rules, ownUrl: own } = deps();
    const sender = startWebhooks({
      ...{ database, deploymentId, rules, secret, ownUrl: own, logger, now: readDatabaseClock, allowPrivate: true },
    });
    onTestFinished(() => sender.stop());
    const runs = await Promise.all(Array.from({ length: 40 }, () => endRun(getHookUrl())));
    sender.wake();
    await expect.poll(() => received.length, { timeout: 10_000 }).toBe(runs.length);
    await expect.poll(() => Promise.all(runs.map(readWebhookState))).toEqual(runs.map(() => 'gone'));
  });

  it('does not wait for webhooks of a receiver that fails', async () => {
    const pending: ServerResponse[] = [];
    let requests = 0;
    const failing = createServer((_request, response) => {
      requests += 1;
      if (requests === 1) response.writeHead(503).end();
      else pending.push(response);
    }).listen(0, '127.0.0.1');
    await once(failing, 'listening');
    const failingUrl = `http://127.0.0.1:${(failing.address() as AddressInfo).port}/hook`;
    const { database, deploymentId, rules, ownUrl: own } = deps();
    const sender = startWebhooks({
      ...{ database, deploymentId, rules, secret, ownUrl: own, logger, now: readDatabaseClock, allowPrivate: true },
    });
    onTestFinished(async () => {
      failing.closeAllConnections();
      await sender.stop();
      failing.close();
    });
    await endRun(failingUrl);
    sender.wake();
    await expect.poll(() => countWebhooks(failingUrl, 'last_error IS NOT NULL')).toBe(1);
    for (let count = 0; count < 40; count += 1) await endRun(failingUrl);
    await endRun(getHookUrl());
    sender.wake();
    await expect.poll(() => received.length, { timeout: 60_000 }).toBe(1);
    expect(pending.length).toBeLessThan(40);
    // The others are sent when the receiver has recovered.
    failing.removeAllListeners('request');
    failing.on('request', (_request, response: ServerResponse) => void response.end());
    for (const response of pending) response.end();
    await expect.poll(() => countWebhooks(failingUrl, 'attempts = 0'), { timeout: 60_000 }).toBe(0);
  });

  async function countWebhooks(url: string, condition: string): Promise<number> {
    return (await stores.database.query(`SELECT FROM agents.webhooks WHERE url = $1 AND ${condition}`, [url])).length;
  }
});
