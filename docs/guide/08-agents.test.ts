// # 8. Agents
//
// Runlake runs LangGraph graphs too, and answers for them as their SDKs expect: threads, runs that stream, questions to
// a human, state that is kept. `langgraph.json` names the graphs; this chapter's are in docs/guide/agents:
//
//   { "graphs": { "trip": "./trip.js:graph" } }
//
// With RUNLAKE_AGENTS_FILE=docs/guide/agents/langgraph.json, `make start` serves them on port 2024 beside the main API;
// `runlake agents` does it in a process of its own. Graph code runs in processes apart from the one that answers: what
// blocks, leaks or exits there costs its own run an error, and nothing else. Started as root on Linux, Runlake gives
// each of these processes a user id of its own, which cannot read its secrets, and only HOME and TMPDIR to write to.
// Else graph code is as trusted as the operator. The start says which of the two it is, and so does `runlake doctor`;
// SECURITY.md says what graph code can reach.

import { fileURLToPath } from 'node:url';
import { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { freePorts } from '../../infra/embedded/free-port.ts';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

interface Trip {
  readonly city: string;
  readonly plan?: string;
  readonly booking?: string;
}

let runlake: RunlakeProcess;
let agents: Client<Trip>;
let threadId: string;
beforeAll(async () => {
  const [port] = await freePorts(1);
  runlake = await startRunlake({
    environment: {
      RUNLAKE_AGENTS_FILE: fileURLToPath(new URL('agents/langgraph.json', import.meta.url)),
      RUNLAKE_AGENTS_PORT: String(port),
    },
  });
  // A key of Runlake lets you in; it is sent as `x-api-key`.
  agents = new Client<Trip>({ apiUrl: `http://127.0.0.1:${port}`, apiKey: runlake.apiKey });
  await vi.waitFor(() => fetch(`http://127.0.0.1:${port}/ok`), { timeout: 30_000, interval: 100 });
});
afterAll(() => runlake?.remove());

describe('a run', () => {
  it('streams what its graph writes, while it writes it', async () => {
    // A thread keeps state from run to run. `trip` names the graph; there is an assistant of that name for each.
    ({ thread_id: threadId } = await agents.threads.create());
    const words: string[] = [];
    let asked: unknown;
    for await (const { event, data } of agents.runs.stream(threadId, 'trip', {
      input: { city: 'Lyon' },
      streamMode: ['custom', 'updates'],
    })) {
      if (event === 'custom') words.push((data as { word: string }).word);
      if (event === 'updates' && '__interrupt__' in data) asked = data.__interrupt__;
    }
    expect(words.join(' ')).toMatch(/^A train to Lyon on Friday,/);

    // The graph called `interrupt`: the run is over, and the thread waits for an answer.
    expect(asked).toMatchObject([{ value: { question: 'Shall I book it?' } }]);
    expect(await agents.threads.get(threadId)).toMatchObject({ status: 'interrupted' });
  });
});

describe('state', () => {
  it('outlives the process: kill it, start it again, answer', async () => {
    await runlake.kill();
    runlake = await runlake.restart();
    await expect.poll(() => agents.threads.get(threadId).catch(() => undefined), { timeout: 30_000 }).toBeDefined();

    const { next, tasks } = await agents.threads.getState(threadId);
    expect(next).toEqual(['ask']);
    expect(tasks[0]?.interrupts[0]?.value).toMatchObject({ question: 'Shall I book it?' });

    // `wait` answers with the state at the end of the run.
    expect(await agents.runs.wait(threadId, 'trip', { command: { resume: 'yes' } })).toMatchObject({
      booking: 'booked: Lyon',
    });
    expect(await agents.threads.get(threadId)).toMatchObject({ status: 'idle', values: { booking: 'booked: Lyon' } });
  });

  it('is kept at each step, and each can be looked at', async () => {
    const history = await agents.threads.getHistory(threadId);
    expect(history.map(({ next }) => next[0])).toEqual([undefined, 'book', 'ask', 'propose', '__start__']);

    const before = history.find(({ next }) => next[0] === 'propose');
    const then = await agents.threads.getState(threadId, before?.checkpoint ?? '');
    expect(then.values).toEqual({ city: 'Lyon' });
  });
});

describe('what was done', () => {
  const ask = async <Answer>(path: string, body?: object) => {
    const answer = await fetch(`${runlake.url}/api/v1${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
      ...(body && { body: JSON.stringify(body) }),
    });
    return (await answer.json()) as Answer;
  };

  it('is a trace for each run, under its id, in a project of the name of the graph, with its nodes in it', async () => {
    const [newest] = await agents.runs.list(threadId);
    const read = async (isRoot: boolean) =>
      (await ask('/runs/query', { trace: newest?.run_id, is_root: isRoot })) as { runs: { name: string }[] };
    await expect
      .poll(() => read(true), { timeout: 20_000 })
      .toMatchObject({ runs: [{ name: 'trip', status: 'success', outputs: { booking: 'booked: Lyon' } }] });
    expect((await read(false)).runs.map(({ name }) => name)).toContain('book');
    expect(await ask('/sessions?name=trip')).toMatchObject([{ name: 'trip' }]);
  });

  it('is counted like any other', async () => {
    const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);
    const [from, to] = [day(Date.now() - 86_400_000), day(Date.now() + 2 * 86_400_000)];
    await expect
      .poll(() => ask(`/orgs/current/billing/usage?starting_on=${from}&ending_before=${to}`), { timeout: 20_000 })
      .toMatchObject([{ billable_metric_name: 'Traces', value: 2 }]);
  });
});
