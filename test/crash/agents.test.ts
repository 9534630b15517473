import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Client } from '@langchain/langgraph-sdk';
import { beforeEach, expect, test, vi } from 'vitest';
import { findFreePorts } from '../../infra/embedded/free-port.ts';
import { listNumbers } from '../api/agent-server/stream-parts.ts';
import { forSuite } from '../for-suite.ts';
import { until } from '../infra/until.ts';
import { testSettings } from '../test-settings.ts';
import { followNew, groupByAttempt, type RunOnThread, readToEnd, written } from './agent-reader.ts';
import { Gate } from './gate.ts';
import { deadlineMs, type Instance, shareInstance } from './instance.ts';

/** Graph runs under `runlake all`, whose processes are killed in the middle of runs. */

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

let url: string;
const instance = shareInstance(async () => {
  const [port] = await findFreePorts(1);
  url = `http://127.0.0.1:${port}`;
  return {
    RUNLAKE_AGENTS_FILE: fileURLToPath(new URL('../agents/projects/basic/langgraph.json', import.meta.url)),
    RUNLAKE_AGENTS_PORT: String(port),
    ...testSettings({ agentsLeaseMs: 1_500 }),
    RUNLAKE_AGENTS_WORKERS: '1',
  };
});
const client = forSuite(
  () => new Client({ apiUrl: url, apiKey: instance.runlake.apiKey, callerOptions: { maxRetries: 0 } }),
);
const isUp = async () => (await fetch(`${url}/ok`).catch(() => undefined))?.ok === true;
const untilUp = () => until('the agent server to answer', isUp, deadlineMs);
beforeEach(untilUp);

const burst = { input: { n: 60, pauseMs: 80 }, streamMode: 'custom' as const };
/** Returns the request for a run of super-steps; the state after each of them is stored. */
const steps = (text: string) => ({
  input: { steps: 40, pauseMs: 100, text },
  // An attempt that resumes from a stored state counts steps anew; without this limit, only killed runs would finish.
  config: { recursion_limit: 100 },
  streamMode: 'custom' as const,
});
const buildExpectedLog = (text: string) => listNumbers(40).map((index) => `${text} ${index + 1}`);

async function begin(graph: string, run: object, threadId?: string): Promise<RunOnThread> {
  const thread = threadId ?? (await client.threads.create()).thread_id;
  const { run_id: runId } = await client.runs.create(thread, graph, { streamResumable: true, ...run });
  return { threadId: thread, runId };
}
const read = (run: RunOnThread) => readToEnd([client], run, deadlineMs);
const statusOf = async ({ threadId, runId }: RunOnThread) => (await client.runs.get(threadId, runId)).status;
const untilEnded = (run: RunOnThread) =>
  expect.poll(() => statusOf(run).catch(() => 'away'), { timeout: deadlineMs }).not.toMatch(/pending|running|away/);

/**
 * Waits until the runs are counted as traces, which happens after their ends were published. As graph runs and with their
 * nodes they were counted when they ended.
 */
async function counted(since: Awaited<ReturnType<Instance['since']>>, runs: number, nodes: number): Promise<void> {
  await expect.poll(() => since.countedTraces(), { timeout: deadlineMs }).toBe(runs);
  expect(await since.countedAgentRuns()).toEqual({ runs, nodes });
}

/** Process ids of the workers that run graph code. */
function workers(): number[] {
  const lines = execFileSync('ps', ['-eo', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n');
  return lines
    .map((line) => /^\s*(\d+)\s+(\d+)\s+(.*worker-process.*)$/.exec(line))
    .filter((match) => Number(match?.[2]) === instance.runlake.pid)
    .map((match) => Number(match?.[1]));
}

test('kill -9 of a worker process: its runs start another attempt and end, and readers see both attempts', async () => {
  const since = await instance.since();
  const runs = [await begin('burst', burst), await begin('steps', steps('a'))] as const;
  const readers = runs.map(read);
  await until('both runs to be streaming', () => readers.every(({ parts }) => parts.length > 15), deadlineMs);
  const killed = workers();
  expect(killed.length).toBeGreaterThan(0);
  for (const pid of killed) process.kill(pid, 'SIGKILL');
  const seen = await Promise.all(readers.map(({ ended }) => ended));

  for (const [index, run] of runs.entries()) {
    expect([...groupByAttempt(run, seen[index] ?? []).keys()]).toEqual([1, 2]);
    expect(await statusOf(run)).toBe('success');
  }
  expect(written(groupByAttempt(runs[0], seen[0] ?? []).get(2), 'i')).toEqual(listNumbers(60));
  // The second attempt resumed from the stored state.
  expect(written(groupByAttempt(runs[1], seen[1] ?? []).get(2), 'step').at(-1)).toBe(40);
  const { status, values } = await client.threads.get(runs[1].threadId);
  expect({ status, values }).toMatchObject({ status: 'idle', values: { log: buildExpectedLog('a') } });
  await counted(since, 2, 41);
  expect(workers().filter((pid) => killed.includes(pid))).toEqual([]);
});

test('kill -9 while a subgraph is at its interrupt: the next attempt stops there, too', async () => {
  const since = await instance.since();
  const gate = await Gate.closed();
  const run = await begin('resting', {
    input: { gate: gate.url },
    streamMode: 'updates' as const,
    streamSubgraphs: true,
  });
  const reader = read(run);
  const nextInside = async () => {
    const { tasks } = await client.threads.getState(run.threadId, undefined, { subgraphs: true });
    return tasks.find(({ name }) => name === 'between')?.state?.tasks[0]?.state?.next;
  };
  await until('the subgraph to reach its interrupt', async () => (await nextInside())?.[0] === 'second', deadlineMs);
  for (const pid of workers()) process.kill(pid, 'SIGKILL');
  gate.open();
  const attempts = groupByAttempt(run, await reader.ended);

  expect([...attempts.keys()]).toEqual([1, 2]);
  expect(JSON.stringify([...attempts.values()])).not.toContain('second');
  expect(await statusOf(run)).toBe('success');
  expect(await client.threads.get(run.threadId)).toMatchObject({ status: 'interrupted' });
  expect(await nextInside()).toEqual(['second']);
  await counted(since, 1, 4);
});

test('kill -9 in the middle of runs: they are requeued in order, an earlier cancel holds, and each counts once', async () => {
  const since = await instance.since();
  const runs = [await begin('burst', burst), await begin('steps', steps('b'))] as const;
  const next = await begin('steps', { ...steps('c'), input: { steps: 1, pauseMs: 0, text: 'c' } }, runs[1].threadId);
  const plain = await begin('burst', { ...burst, streamResumable: false });
  const hanging = await begin('misbehave', { input: { how: 'hang' }, streamMode: 'custom' });
  const readers = [...runs, hanging].map(read);
  await until(
    'all runs to be streaming',
    () => readers.slice(0, 2).every(({ parts }) => parts.length > 15),
    deadlineMs,
  );
  await until('the hanging run to start', () => (readers[2]?.parts.length ?? 0) > 1, deadlineMs);
  await client.runs.cancel(hanging.threadId, hanging.runId);
  await instance.restart();
  const seen = await Promise.all(readers.map(({ ended }) => ended));
  await Promise.all([...runs, next, plain, hanging].map(untilEnded));

  for (const [index, run] of runs.entries()) {
    const attempts = groupByAttempt(run, seen[index] ?? []);
    expect([...attempts.keys()]).toEqual([1, 2]);
    expect(attempts.get(1)?.length).toBeGreaterThan(15);
  }
  expect(written(groupByAttempt(runs[0], seen[0] ?? []).get(2), 'i')).toEqual(listNumbers(60));
  expect(await Promise.all([...runs, next, plain].map(statusOf))).toEqual(Array(4).fill('success'));
  expect(await statusOf(hanging)).toBe('interrupted');
  const { status, values } = await client.threads.get(next.threadId);
  expect({ status, values }).toMatchObject({ status: 'idle', values: { log: [...buildExpectedLog('b'), 'c 41'] } });
  for (const { threadId } of [runs[0], plain, hanging]) {
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle' });
  }
  // A later reader gets what is stored: the events that the killed attempt had stored, and all events
  const later = groupByAttempt(runs[0], await read(runs[0]).ended);
  expect(later.get(2)).toEqual(groupByAttempt(runs[0], seen[0] ?? []).get(2));
  await counted(since, 5, 43);
});

test('kill -9 between the end of a run and its trace: the next start publishes the end and counts the run once', async () => {
  const since = await instance.since();
  const run = await begin('burst', { ...burst, input: { n: 40, pauseMs: 25 }, streamResumable: false });
  await until('the run to start', async () => (await statusOf(run)) === 'running', deadlineMs);
  const release = await instance.stallClickhouse();
  await untilEnded(run);
  await instance.runlake.kill();
  release();
  await instance.restart();
  await untilUp();

  await counted(since, 1, 1);
  // Children of earlier graph runs may be stored after their traces were counted, so this set can contain more.
  expect([...(await since.storedRuns())]).toContain(run.runId);
  expect(await statusOf(run)).toBe('success');
  expect(await client.threads.get(run.threadId)).toMatchObject({ status: 'idle' });
});

test('kill -9 of Postgres in the middle of runs: runs end normally, in the same or a later attempt', async () => {
  const since = await instance.since();
  const runs = [await begin('burst', burst), await begin('steps', steps('d'))] as const;
  const readers = runs.map(read);
  await until('both runs to be streaming', () => readers.every(({ parts }) => parts.length > 15), deadlineMs);
  process.kill(instance.enginePid('postgres'), 'SIGKILL');
  const seen = await Promise.all(readers.map(({ ended }) => ended));
  await Promise.all(runs.map(untilEnded));

  for (const [index, run] of runs.entries()) groupByAttempt(run, seen[index] ?? []);
  expect(await client.threads.get(runs[0].threadId)).toMatchObject({
    error: null,
    status: 'idle',
    values: { done: 60 },
  });
  expect(await client.threads.get(runs[1].threadId)).toMatchObject({
    error: null,
    status: 'idle',
    values: { log: buildExpectedLog('d') },
  });
  expect(await Promise.all(runs.map(statusOf))).toEqual(['success', 'success']);
  await counted(since, 2, 41);
  expect(instance.runlake.output()).not.toMatch(/unhandled|uncaught/i);
});

test('kill -9 of ClickHouse in the middle of runs: runs end normally, readers get all events, each trace is stored once', async () => {
  const since = await instance.since();
  const gate = await Gate.closed();
  const gated = { ...burst, input: { ...burst.input, gate: gate.url, gateAt: 20 } };
  const runs = [await begin('burst', gated), await begin('steps', steps('e'))] as const;
  const plain = await followNew(client, 'burst', gated);
  const readers = [...runs.map(read), plain.reader];
  await until('all runs to be streaming', () => readers.every(({ parts }) => parts.length > 15), deadlineMs);
  process.kill(instance.enginePid('clickhouse'), 'SIGKILL');
  gate.open();
  const seen = await Promise.all(readers.map(({ ended }) => ended));
  const all = [...runs, plain.run];
  await Promise.all(all.map(untilEnded));

  for (const [index, run] of all.entries()) expect([...groupByAttempt(run, seen[index] ?? []).keys()]).toEqual([1]);
  for (const index of [0, 2]) expect(written(seen[index], 'i')).toEqual(listNumbers(60));
  expect(written(seen[1], 'step')).toEqual(listNumbers(40).map((step) => step + 1));
  for (const { threadId } of all)
    expect(await client.threads.get(threadId)).toMatchObject({ error: null, status: 'idle' });
  expect(await Promise.all(all.map(statusOf))).toEqual(['success', 'success', 'success']);
  await counted(since, 3, 42);
  const stored = await since.storedRuns();
  expect(all.filter(({ runId }) => !stored.has(runId))).toEqual([]);
  // Another process reads the same events from storage.
  await instance.restart();
  await untilUp();
  for (const [index, run] of runs.entries()) expect(await read(run).ended).toEqual(seen[index]);
  await counted(since, 3, 42);
  expect(instance.runlake.output()).not.toMatch(/unhandled|uncaught/i);
});

test('a run whose process is killed each time fails after its third attempt; its reader sees each attempt, and concurrent runs succeed', async () => {
  const concurrent = await begin('burst', burst);
  const run = await begin('misbehave', { input: { how: 'kill', afterMs: 300 }, streamMode: 'custom' });
  const parts = await read(run).ended;
  expect([...groupByAttempt(run, parts.slice(0, -1)).keys()]).toEqual([1, 2, 3]);
  expect(parts.at(-1)).toMatchObject({ event: 'error', data: { error: 'RunLost' } });
  expect(await statusOf(run)).toBe('error');
  expect(await client.threads.get(run.threadId)).toMatchObject({ status: 'error' });
  expect(await client.runs.wait(run.threadId, 'burst', { input: { n: 1 } })).toMatchObject({ done: 1 });
  await untilEnded(concurrent);
  expect(await statusOf(concurrent)).toBe('success');
});
