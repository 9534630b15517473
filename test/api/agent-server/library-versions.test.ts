import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { MemorySaver } from '@langchain/langgraph-checkpoint';
import { Client as LangSmith, type Run } from 'langsmith';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { type CompiledGraph, isCompiledGraph } from '../../../pipelines/agents/graphs/compiled-graph.ts';
import { stoppedAtHead } from '../../../pipelines/agents/workers/child/stopped-at-head.ts';
import { copyProjectsWithLibrary, type Library } from '../../agents/projects-with.ts';
import { isFullExtent } from '../../house/extent.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/**
 * A graph uses its own 1.x version of LangGraph and LangChain. One graph runs on the oldest and on the newest version;
 * with `make test-all`, suites of the agent server do so too. `traces` is not one of them: it expects the trees of the
 * version that the repository installs, and LangGraph 1.0 also traces the channel writes of each node. To run one
 * suite: `RUNLAKE_TEST_LANGGRAPH=oldest npx vitest run FILE`.
 *
 * The tests here also guard the private parts of the libraries that Runlake still uses; each test names the part.
 */
const suites = ['interrupts', 'runs', 'stateless', 'store', 'streams', 'threads', 'unknown-nodes'];
const suitesOf: Readonly<Record<Library, readonly string[]>> = {
  // LangGraph 1.0 streams neither messages as content blocks nor tool events, which `protocol` expects.
  oldest: suites,
  newest: [...suites, 'protocol'],
};

describe.each<Library>(['oldest', 'newest'])('the %s library', (library) => {
  let projects: string;
  let agents: AgentServerUnderTest;
  let main: Awaited<ReturnType<typeof buildServer>>;
  let langsmith: LangSmith;
  beforeAll(async () => {
    projects = await copyProjectsWithLibrary(library);
    agents = await startAgentServer({ project: 'versions', projects });
    const { config } = agents.services.agents;
    const logger = createLogger('silent', 'test');
    main = await buildServer({ config: config as Config, services: agents.answering, logger, operations });
    const url = await main.listen({ host: '127.0.0.1', port: 0 });
    langsmith = new LangSmith({ apiUrl: url, apiKey: agents.owner.adminKey });
  }, 240_000);
  afterAll(async () => {
    await main?.drain();
    await agents?.close();
  });

  it('is the one that the graphs load', async () => {
    const { version } = JSON.parse(
      readFileSync(join(projects, '../node_modules/@langchain/langgraph/package.json'), 'utf8'),
    ) as { version: string };
    expect(await (await agents.ask('GET', '/info')).json()).toMatchObject({ langgraph_js_version: version });
  });

  it('streams, interrupts in a subgraph, resumes, uses the store and is traced', async () => {
    const { client } = agents;
    const { thread_id } = await client.threads.create();
    const parts: { event: string; data: unknown }[] = [];
    let runId = '';
    const input = { name: 'ann' };
    for await (const part of client.runs.stream(thread_id, 'everything', {
      input,
      streamMode: ['custom', 'values', 'messages'],
      streamSubgraphs: true,
    })) {
      if (part.event === 'metadata') runId = part.data.run_id;
      parts.push(part as (typeof parts)[number]);
    }
    expect(parts.filter(({ event }) => event === 'custom').map(({ data }) => data)).toEqual([
      { number: 0 },
      { number: 1 },
      { number: 2 },
    ]);
    expect(parts.some(({ event }) => event.startsWith('values|within:'))).toBe(true);
    const waiting = await client.threads.getState(thread_id, undefined, { subgraphs: true });
    expect(waiting).toMatchObject({
      next: ['within'],
      values: { said: ['ANN', 3] },
      tasks: [{ name: 'within', interrupts: [{ value: 'What, ann?' }], state: { next: ['ask'] } }],
    });
    const values = await client.runs.wait(thread_id, 'everything', { command: { resume: 'tea' } });
    expect(values).toMatchObject({ said: expect.arrayContaining(['answer: tea', 'greeted: true']) });
    expect(await client.threads.getHistory(thread_id)).not.toHaveLength(0);
    expect(await client.store.getItem(['people'], 'ann')).toMatchObject({ value: { greeted: true } });
    const parents = await parentsIn(langsmith, runId);
    // `getRunTreeWithTracingConfig` and `client` of the tracer: `count` is traced by the `langsmith` package.
    expect(parents).toMatchObject({ greet: 'everything', upper: 'greet', count: 'greet', within: 'everything' });
  });

  it('streams all events before the failure (`_streamIterator`)', async () => {
    const numbers: unknown[] = [];
    let failure: unknown;
    for await (const { event, data } of agents.client.runs.stream(null, 'failing', {
      input: {},
      streamMode: 'custom',
    })) {
      if (event === 'custom') numbers.push((data as { number: number }).number);
      if (event === 'error') failure = data;
    }
    expect(numbers).toEqual(Array.from({ length: 50 }, (_, number) => number));
    expect(failure).toMatchObject({ message: 'as intended' });
  });

  it('records the breakpoint at which a run stops (`versions_seen`)', async () => {
    const file = pathToFileURL(join(projects, 'versions/graphs.js')).href;
    const { stopping } = (await import(/* @vite-ignore */ file)) as { stopping: CompiledGraph };
    expect(isCompiledGraph(stopping)).toBe(true);
    const graph = stopping.withConfig({});
    const saver = new MemorySaver();
    graph.checkpointer = saver;
    const config = { configurable: { thread_id: 't' } };
    const none = { before: undefined, after: undefined };
    const run = async (input: unknown) => {
      for await (const _ of await graph.stream(input, config));
    };
    await run({ name: 'ann' });
    expect(await stoppedAtHead(graph, saver, 't', none)).toBe(true);
    await run(null);
    expect(await stoppedAtHead(graph, saver, 't', none)).toBe(false);
    const head = await saver.getTuple(config);
    expect(head?.checkpoint.versions_seen).toHaveProperty('__interrupt__');
    expect(stopping.checkpointer).toBeUndefined();
  });

  it.runIf(isFullExtent)(
    'passes the suites of the agent server',
    async () => {
      const words = [
        'node_modules/vitest/vitest.mjs',
        'run',
        '--project',
        'embedded',
        ...suitesOf[library].map(suiteFile),
      ];
      const child = spawn(process.execPath, words, {
        env: { ...process.env, RUNLAKE_TEST_LANGGRAPH: library, RUNLAKE_TEST_ALL: 'false', RUNLAKE_TEST_REPORT: '' },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let output = '';
      const keep = (data: Buffer) => {
        output += data;
      };
      for (const stream of [child.stdout, child.stderr]) stream.on('data', keep);
      const [code] = await once(child, 'exit');
      expect(code, output.slice(-20_000)).toBe(0);
    },
    1_200_000,
  );
});

function suiteFile(name: string): string {
  return `test/api/agent-server/${name}.test.ts`;
}

/** Waits until a trace has ended. Returns the name of each run's parent, by the name of the run. */
async function parentsIn(langsmith: LangSmith, traceId: string): Promise<Record<string, string | undefined>> {
  let runs: Run[] = [];
  const read = async () => {
    runs = [];
    for await (const run of langsmith.listRuns({ traceId })) runs.push(run);
    return runs.some(({ name }) => name === 'count') && runs.every(({ end_time }) => end_time != null);
  };
  await expect.poll(() => read().catch(() => false), { timeout: 20_000 }).toBe(true);
  const names = new Map(runs.map(({ id, name }) => [id, name]));
  return Object.fromEntries(runs.map(({ name, parent_run_id }) => [name, names.get(parent_run_id ?? '')]));
}
