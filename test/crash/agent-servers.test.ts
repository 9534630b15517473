/** Separate roles of the agent server, on Kafka: the others continue when one is killed in the middle of a run. */
import type { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { all } from '../api/agent-server/stream-parts.ts';
import { stackPart } from '../engines/stack.ts';
import { pickSome } from '../house/extent.ts';
import { askPostgres } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { type AgentReader, type RunOnThread, readToEnd } from './agent-reader.ts';
import { AgentRoles, type AgentServer } from './agent-roles.ts';
import { Gate } from './gate.ts';
import { LockedThreadRow } from './held-row.ts';
import { deadlineMs } from './pipeline.ts';
import { serversToKill } from './servers-of-roles.ts';
import { WebhookReceiver } from './webhook-receiver.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const n = 150;
const gateAt = 30;
/** Numbers of the tests that run; `make test-all` runs all. */
const selectedTests = pickSome([1, 2, 3, 4, 5, 6], 1 / 2);

describe.runIf(stackPart('kafka') && stackPart('registry'))('agent processes', () => {
  let own: Awaited<ReturnType<typeof serversToKill>>;
  let roles: AgentRoles;
  beforeAll(async () => {
    own = await serversToKill();
    roles = await AgentRoles.open(own);
  });
  afterAll(() => roles?.close());

  /** Returns the input for runs of {@link n} events that wait at a gate in the middle, and the gate. */
  const openGatedRuns = async () => {
    const gate = await Gate.closed();
    return { gate, burst: { n, pauseMs: 5, gateAt, gate: gate.url } };
  };
  const waitUntilAtGate = (readers: readonly AgentReader[]) =>
    until('all runs to reach the gate', () => readers.every(({ parts }) => parts.length > gateAt), deadlineMs);
  const ended = (readers: readonly AgentReader[]) => Promise.all(readers.map((reader) => reader.ended));

  test.runIf(selectedTests.includes(1))(
    'kill -9 of one agent server: another requeues its runs, and readers there follow both attempts to the end',
    async () => {
      const [first, second] = roles.agents as [AgentServer, AgentServer];
      const { gate, burst } = await openGatedRuns();
      const runs = await roles.begin(4, burst);
      // One reader stays connected, the other reader loses its server.
      const stayingReaders = runs.map((run) => readToEnd([second.client], run, deadlineMs));
      const move = runs.map((run) => readToEnd([first.client, second.client], run, deadlineMs));
      await waitUntilAtGate([...stayingReaders, ...move]);
      await roles.killAgents(first);
      gate.open();
      const [seen, moved] = [await ended(stayingReaders), await ended(move)];
      expect(moved).toEqual(seen);
      expect(Math.max(...(await roles.expectEnded(runs, seen, n)))).toBe(2);
      await roles.startAgents();
      // The new process reads the stored events.
      const [run] = runs as [(typeof runs)[0]];
      expect(await readToEnd(roles.clients.slice(1), run, deadlineMs).ended).toEqual(seen[0]);
    },
  );

  test.runIf(selectedTests.includes(2))(
    'kill -9 of the main API in the middle of runs: runs continue, and each trace is stored once after the restart',
    async () => {
      const { gate, burst } = await openGatedRuns();
      const runs = await roles.begin(4, burst);
      const readers = runs.map((run, index) => readToEnd([roles.clients[index % 2] as Client], run, deadlineMs));
      await waitUntilAtGate(readers);
      await roles.api.end('SIGKILL');
      gate.open();
      const seen = await ended(readers);
      await roles.startApi();
      expect(await roles.expectEnded(runs, seen, n)).toEqual([1, 1, 1, 1]);
    },
  );

  test.runIf(selectedTests.includes(3))(
    'kill -9 of Postgres in the middle of runs, separate roles: runs end normally, in the same or a later attempt',
    async () => {
      const { gate, burst } = await openGatedRuns();
      const runs = await roles.begin(4, burst);
      const readers = runs.map((run, index) => readToEnd([roles.clients[index % 2] as Client], run, deadlineMs));
      await waitUntilAtGate(readers);
      await own.postgres.kill();
      gate.open();
      await own.postgres.start();
      await roles.expectEnded(runs, await ended(readers), n);
    },
  );

  test.runIf(selectedTests.includes(4))(
    'kill -9 of Kafka in the middle of runs: no streamed event is missing after the restart',
    async () => {
      const { gate, burst } = await openGatedRuns();
      const runs = await roles.begin(4, burst);
      const readers = runs.map((run, index) => readToEnd([roles.clients[index % 2] as Client], run, deadlineMs));
      await waitUntilAtGate(readers);
      await own.kafka.kill();
      gate.open();
      await own.kafka.start();
      await roles.expectEnded(runs, await ended(readers), n);
    },
  );

  test.runIf(selectedTests.includes(5))(
    'kill -9 of ClickHouse in the middle of runs: runs and readers continue, and events are stored once after the restart',
    async () => {
      const [first, second] = roles.clients as [Client, Client];
      const { gate, burst } = await openGatedRuns();
      const resumable = await roles.begin(2, burst);
      const plain = await Promise.all([first, second].map((client) => roles.follow(client, burst)));
      const readers = [
        ...resumable.map((run) => readToEnd([first], run, deadlineMs)),
        ...plain.map(({ reader }) => reader),
      ];
      await waitUntilAtGate(readers);
      await own.clickhouse.kill();
      gate.open();
      const [{ threadId, runId }] = resumable as [RunOnThread];
      const before = readers[0]?.parts.slice(0, 20) ?? [];
      const resumed = all(second.runs.joinStream(threadId, runId, { lastEventId: before.at(-1)?.id as string }));
      // Readers get all events while ClickHouse is down.
      const seen = await ended(readers);
      expect([...before, ...(await resumed)]).toEqual(seen[0]);
      await own.clickhouse.start();
      const runs = [...resumable, ...plain.map(({ run }) => run)];
      expect(await roles.expectEnded(runs, seen, n)).toEqual([1, 1, 1, 1]);
      // Processes started afterwards return the same events.
      await roles.killAgents(...roles.agents);
      await Promise.all([roles.startAgents(), roles.startAgents()]);
      const later = resumable.map((run) => readToEnd(roles.clients, run, deadlineMs));
      expect(await ended(later)).toEqual(seen.slice(0, 2));
    },
  );

  test.runIf(selectedTests.includes(6))(
    'kill -9 of all agent servers while a cron fires, a webhook is sent and delayed runs wait: each happens once after the restart',
    async () => {
      const receiver = await WebhookReceiver.open();
      const [client] = roles.clients as [Client];
      const thread = async () => (await client.threads.create()).thread_id;
      const once = { input: { n: 1, pauseMs: 0 } };

      const withWebhook = await client.runs.create(await thread(), 'burst', { ...once, webhook: receiver.url });
      await until('the webhook request to arrive', () => receiver.received.length === 1, deadlineMs);
      const [soonOn, laterOn, firesOn] = [await thread(), await thread(), await thread()];
      const later = await client.runs.create(laterOn, 'burst', { ...once, afterSeconds: 3_600 });
      const cron = await client.crons.createForThread(firesOn, 'burst', { ...once, schedule: '0 0 1 1 *' });
      const row = await LockedThreadRow.of(roles.databaseUrl, firesOn);
      const due = new Date(Date.UTC(new Date().getUTCFullYear(), 0, 1)).toISOString();
      await askPostgres(roles.databaseUrl, `UPDATE agents.crons SET next_run_date = '${due}'`);
      await askPostgres(roles.databaseUrl, `NOTIFY agent_crons`);
      await row.untilWantedBy('crons');
      const delayedRun = await client.runs.create(soonOn, 'burst', { ...once, afterSeconds: 2 });
      await roles.killAgents(...roles.agents);
      await row.release();
      // Otherwise the retry waits until the delivery timeout has passed.
      await askPostgres(roles.databaseUrl, 'UPDATE agents.webhooks SET due_at = now()');
      receiver.answers = true;
      await Promise.all([roles.startAgents(), roles.startAgents()]);

      const [restarted] = roles.clients as [Client];
      const runsOf = (threadId: string) => restarted.runs.list(threadId);
      await until('the second webhook request', () => receiver.received.length === 2, deadlineMs);
      const [first, second] = receiver.received.map(({ body }) => ({ ...JSON.parse(body), webhook_sent_at: '' }));
      expect(first).toMatchObject({ run_id: withWebhook.run_id, status: 'success', values: { done: 1 } });
      expect(second).toEqual(first);
      const statuses = async (threadId: string) => (await runsOf(threadId)).map(({ status }) => status);
      for (const threadId of [soonOn, firesOn]) {
        await expect.poll(() => statuses(threadId), { timeout: deadlineMs }).toEqual(['success']);
      }
      expect(await runsOf(firesOn)).toMatchObject([{ metadata: { cron_id: cron.cron_id } }]);
      expect((await runsOf(soonOn)).map(({ run_id }) => run_id)).toEqual([delayedRun.run_id]);
      const waits = `SELECT extract(epoch FROM started_at - created_at)::float8 AS s FROM agents.runs WHERE run_id = '${delayedRun.run_id}'`;
      expect((await askPostgres(roles.databaseUrl, waits))[0]).toBeGreaterThanOrEqual(2);
      expect(await runsOf(laterOn)).toMatchObject([{ run_id: later.run_id, status: 'pending' }]);
      await restarted.runs.cancel(laterOn, later.run_id);
      const [fired] = (await runsOf(firesOn)).map(({ run_id }) => run_id);
      roles.expectTraces(withWebhook.run_id, delayedRun.run_id, later.run_id, fired as string);
      await roles.expectCounted();
      expect(receiver.received).toHaveLength(2);
      expect(receiver.received.map(({ isSigned }) => isSigned)).toEqual([true, true]);
    },
  );
});
