import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { awaitAllCallbacks } from '@langchain/core/callbacks/promises';
import { LangChainTracer } from '@langchain/core/tracers/tracer_langchain';
import { Client as LangSmith, type Run } from 'langsmith';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { Gate } from '../../crash/gate.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Inner runs of graph runs, read back through the main API by the stock client. */

const agent = forSuite(() =>
  startAgentServer({ project: 'traced', config: { agentsTraceChildRuns: 40, maxRunBytes: 300_000 } }),
);
let main: Awaited<ReturnType<typeof buildServer>>;
let mainUrl: string;
let langsmith: LangSmith;

beforeAll(async () => {
  main = await buildServer({
    config: agent.services.agents.config as Config,
    services: agent.answering,
    logger,
    operations,
  });
  mainUrl = await main.listen({ host: '127.0.0.1', port: 0 });
  langsmith = new LangSmith({ apiUrl: mainUrl, apiKey: agent.owner.adminKey });
}, 120_000);
afterAll(async () => {
  await main?.drain();
});

async function read(filter: { traceId?: string; projectName?: string }): Promise<Run[]> {
  const runs: Run[] = [];
  for await (const run of langsmith.listRuns(filter)) runs.push(run);
  return runs.sort((a, b) => ((a.dotted_order ?? '') < (b.dotted_order ?? '') ? -1 : 1));
}

/** Returns the runs of a trace in order, once the root has ended and `complete` accepts them. */
async function readTraceRuns(traceId: string, complete = (runs: Run[]) => runs.length > 1): Promise<Run[]> {
  const seen = () => read({ traceId }).catch(() => []);
  await expect
    .poll(
      async () => {
        const runs = await seen();
        return runs.some(({ id, end_time }) => id === traceId && end_time != null) && complete(runs);
      },
      { timeout: 20_000 },
    )
    .toBe(true);
  return seen();
}

/** Finds the processes that run graph code. */
function workers(): number[] {
  const lines = execFileSync('ps', ['-eo', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n');
  return lines
    .map((line) => /^\s*(\d+)\s+(\d+)\s+.*worker-process/.exec(line))
    .filter((match) => Number(match?.[2]) === process.pid)
    .map((match) => Number(match?.[1]));
}

/** Runs a graph on a thread to its end. */
async function runOf(graph: string, body: object): Promise<{ runId: string; threadId: string }> {
  const { thread_id: threadId } = await agent.client.threads.create();
  const { run_id: runId } = await agent.client.runs.create(threadId, graph, body);
  await agent.client.runs.join(threadId, runId).catch(() => undefined);
  return { runId, threadId };
}

const named = (runs: readonly Run[], name: string) => runs.find((run) => run.name === name) as Run;

describe('the trace of a run', () => {
  it('is the tree that the stock tracer sends', async () => {
    const { graph } = await import('../../agents/projects/traced/whole.ts');
    const input = { messages: [{ role: 'human', content: 'hello', id: 'm1' }] };
    const stockId = randomUUID();
    await graph.invoke(input, {
      runId: stockId,
      callbacks: [new LangChainTracer({ client: langsmith, projectName: 'stock' })],
      tags: ['night'],
      metadata: { team: 'blue' },
    });
    await awaitAllCallbacks();
    await langsmith.awaitPendingTraceBatches();
    const { runId } = await runOf('whole', { input, config: { tags: ['night'] }, metadata: { team: 'blue' } });
    const stock = await readTraceRuns(stockId, (runs) => runs.every(({ end_time }) => end_time != null));
    const ours = await readTraceRuns(runId, (runs) => runs.length >= stock.length);

    /** Reduces a trace to what must be equal on both servers: everything except ids, times and the name of the root. */
    const shape = (runs: readonly Run[]) => {
      const byId = new Map(runs.map((run) => [run.id, run]));
      return runs.slice(1).map((run) => ({
        path: (run.dotted_order ?? '')
          .split('.')
          .slice(1)
          .map((part) => byId.get(part.slice(-36))?.name)
          .join(' > '),
        parent: run.parent_run_id === runs[0]?.id ? 'root' : byId.get(run.parent_run_id ?? '')?.name,
        type: run.run_type,
        status: run.status,
        tags: [...(run.tags ?? [])].sort(),
        step: run.extra?.metadata?.langgraph_step,
        node: run.extra?.metadata?.langgraph_node,
        model: run.extra?.metadata?.ls_model_name,
        tokens: [run.prompt_tokens, run.completion_tokens, run.total_tokens],
        firstToken: run.first_token_time != null,
        // Message ids are generated anew in each trace.
        inputs: JSON.stringify(run.inputs).replace(/"id":"[^"]*"/g, ''),
        outputs: JSON.stringify(run.outputs).replace(/"id":"[^"]*"/g, ''),
      }));
    };
    expect(shape(ours)).toEqual(shape(stock));
    expect(ours.length).toBeGreaterThan(9);
  });

  it('names its thread and run, with the tokens of its models', async () => {
    const { runId, threadId } = await runOf('whole', { input: { messages: 'hi' }, metadata: { team: 'blue' } });
    const runs = await readTraceRuns(runId, (all) => all.length > 9);
    const [root] = runs as [Run];
    expect(root).toMatchObject({ id: runId, name: 'whole', status: 'success' });
    for (const run of runs) {
      expect(run).toMatchObject({ trace_id: runId, session_id: root.session_id });
      expect(run.extra?.metadata).toMatchObject({
        ...{ thread_id: threadId, run_id: runId, graph_id: 'whole', run_attempt: 1 },
        assistant_id: expect.any(String),
      });
      expect(run.dotted_order?.startsWith(root.dotted_order ?? 'none')).toBe(true);
    }
    expect(named(runs, 'TwoWords')).toMatchObject({ run_type: 'llm', total_tokens: 18 });
    expect(named(runs, 'TwoWords').first_token_time).toEqual(expect.any(String));
    expect(named(runs, 'count').extra?.metadata).toMatchObject({ thread_id: threadId });
  });

  it('has the error at the node that failed', async () => {
    const { runId } = await runOf('failing', { input: { n: 0 } });
    const runs = await readTraceRuns(runId, (all) => all.some(({ name }) => name === 'bad'));
    expect(named(runs, 'bad')).toMatchObject({ status: 'error', error: expect.stringContaining('out of bounds') });
    expect(named(runs, 'good')).toMatchObject({ status: 'success', outputs: { n: 1 } });
    expect(runs[0]).toMatchObject({ name: 'failing', status: 'error' });
  });

  it('is in the project that the run names, with all inner runs', async () => {
    const asked = { input: { n: 0 }, _langsmithTracer: { projectName: 'elsewhere' } };
    const { runId, threadId } = await runOf('failing', asked);
    const projectMetadata = { langsmith_session_name: 'elsewhere' };
    expect(await agent.client.runs.get(threadId, runId)).toMatchObject(projectMetadata);
    expect(await agent.client.runs.list(threadId)).toMatchObject([projectMetadata]);
    const runs = await readTraceRuns(runId, (all) => all.some(({ name }) => name === 'bad'));
    const { id } = await langsmith.readProject({ projectName: 'elsewhere' });
    expect(new Set(runs.map(({ session_id }) => session_id))).toEqual(new Set([id]));
  });

  it('shows inner runs before the run has ended', async () => {
    const { thread_id: threadId } = await agent.client.threads.create();
    const { run_id: runId } = await agent.client.runs.create(threadId, 'loop', {
      input: { rounds: 3, pauseMs: 60_000 },
    });
    await expect
      .poll(async () => (await read({ traceId: runId })).map(({ name, status }) => [name, status]), { timeout: 20_000 })
      .toEqual([
        ['loop', 'pending'],
        ['__start__', 'success'],
        ['step', 'pending'],
      ]);
    await agent.client.runs.cancel(threadId, runId, true);
    const runs = await readTraceRuns(runId);
    expect(named(runs, 'step')).toMatchObject({ status: 'error', error: expect.any(String) });
  });

  it('continues below the same root after a kill -9, ends the open runs, and is counted once', async () => {
    const gate = await Gate.closed();
    const { thread_id: threadId } = await agent.client.threads.create();
    const { run_id: runId } = await agent.client.runs.create(threadId, 'loop', {
      input: { rounds: 2, gate: gate.url },
    });
    const shown = () => read({ traceId: runId });
    await expect.poll(async () => named(await shown(), 'step')?.status, { timeout: 20_000 }).toBe('pending');
    for (const pid of workers()) process.kill(pid, 'SIGKILL');
    gate.open();
    await agent.client.runs.join(threadId, runId);
    const steps = (runs: readonly Run[]) => runs.filter(({ name, end_time }) => name === 'step' && end_time != null);
    const runs = await readTraceRuns(runId, (all) => steps(all).length === 3);
    const attempts = steps(runs).map(({ status, extra }) => [extra?.metadata?.run_attempt, status]);
    expect(attempts).toEqual([
      [1, 'error'],
      [2, 'success'],
      [2, 'success'],
    ]);
    expect(steps(runs)[0]?.error).toContain('worker process of the run ended');
    expect(runs[0]).toMatchObject({ id: runId, status: 'success', extra: { metadata: { run_attempt: 2 } } });
    expect(runs.filter(({ parent_run_id: parent }) => parent == null)).toHaveLength(1);
    await runRollUp(agent.answering);
    const { id } = await langsmith.readProject({ projectName: 'loop' });
    const roots = await read({ projectName: 'loop' });
    const range = `start_time=2020-01-01&end_time=2100-01-01&group_by=project`;
    const url = `${mainUrl}/api/v1/orgs/current/billing/granular-usage?${range}&workspace_ids=${agent.owner.workspaceIds[0]}`;
    const answer = await fetch(url, { headers: { 'x-api-key': agent.owner.adminKey } });
    const { usage } = (await answer.json()) as { usage: { traces: number; dimensions: { project_id?: string } }[] };
    const projectUsage = usage.filter(({ dimensions }) => dimensions.project_id === id);
    expect(projectUsage.reduce((sum, { traces }) => sum + traces, 0)).toBe(
      roots.filter(({ parent_run_id: parent }) => parent == null).length,
    );
  });

  it('keeps as many runs as configured, and reports how many were dropped', async () => {
    const { runId } = await runOf('loop', { input: { rounds: 60 }, config: { recursion_limit: 100 } });
    const runs = await readTraceRuns(runId, (all) => all.length > 40);
    expect(runs.length).toBe(41);
    expect(runs[0]?.extra?.metadata?.child_runs_left_out).toBeGreaterThan(20);
    expect(runs[0]).toMatchObject({ status: 'success' });
  });

  it('omits values that are too large, and accepts circular values', async () => {
    const { runId } = await runOf('large', { input: { characters: 200_000 } });
    const runs = await readTraceRuns(runId, (all) => all.some(({ name }) => name === 'ring'));
    expect(named(runs, 'ring').inputs).toMatchObject({ big: '10', seen: [1], self: { result: '[Circular]' } });
    expect(named(runs, 'grow')).toMatchObject({ extra: { metadata: { values_left_out: true } }, outputs: null });
    expect(runs[0]?.extra?.metadata).toMatchObject({ child_values_left_out: 1 });
  });

  it('has neither values nor a thread if the run had no thread', async () => {
    const made: string[] = [];
    const run = agent.client.runs.stream(null, 'failing', {
      input: { n: 0 },
      onRunCreated: ({ run_id }) => void made.push(run_id),
    });
    for await (const _event of run);
    const runs = await readTraceRuns(made[0] as string);
    for (const { inputs, outputs, extra } of runs) {
      expect([inputs, outputs ?? {}]).toEqual([{}, {}]);
      expect(extra?.metadata).not.toHaveProperty('thread_id');
    }
  });
});
