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
import type { AuthorizationRequest } from '../../../pipelines/agents/auth/agent-user.ts';
import { loadAuth } from '../../../pipelines/agents/auth/load-auth.ts';
import { isCompiledGraph } from '../../../pipelines/agents/graphs/compiled-graph.ts';
import { readNodes } from '../../../pipelines/agents/graphs/graph-nodes.ts';
import { readSchemas } from '../../../pipelines/agents/requests/schemas.ts';
import { RunTracer } from '../../../pipelines/agents/traces/run-tracer.ts';
import { toLibraryCommand } from '../../../pipelines/agents/workers/child/run-config.ts';
import { isStoppedAtHead } from '../../../pipelines/agents/workers/child/stopped-at-head.ts';
import { copyProjectsWithLibrary, type Library } from '../../agents/projects-with.ts';
import { isFullExtent } from '../../house/extent.ts';
import { logger } from '../../silent-logger.ts';
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
const suitesByLibrary: Readonly<Record<Library, readonly string[]>> = {
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
    const parents = await readParentNames(langsmith, runId);
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

  /** Runs a graph of the project in this process, with the library of the project. */
  async function openGraph(name: string) {
    const exported = (await importProject(projects))[name];
    if (!isCompiledGraph(exported)) throw new Error(`${name} is not a graph`);
    const graph = exported.withConfig({});
    const saver = new MemorySaver();
    graph.checkpointer = saver;
    const config = { configurable: { thread_id: 't' } };
    const run = async (input: unknown) => {
      let state: unknown;
      for await (const values of await graph.stream(input, { ...config, streamMode: 'values' })) state = values;
      return state;
    };
    return { exported, graph, saver, config, run };
  }

  it('records the breakpoint at which a run stops (`versions_seen`)', async () => {
    const { exported, graph, saver, config, run } = await openGraph('stopping');
    const none = { before: undefined, after: undefined };
    await run({ name: 'ann' });
    expect(await isStoppedAtHead(graph, saver, 't', none)).toBe(true);
    await run(null);
    expect(await isStoppedAtHead(graph, saver, 't', none)).toBe(false);
    const head = await saver.getTuple(config);
    expect(head?.checkpoint.versions_seen).toHaveProperty('__interrupt__');
    expect(exported.checkpointer).toBeUndefined();
  });

  it('stores a resume value without a task, and again for the task that uses it (`__resume__`)', async () => {
    const { saver, config, run } = await openGraph('within');
    await run({ name: 'ann' });
    await run(toLibraryCommand({ resume: 'tea' }));
    const writes: unknown[] = [];
    for await (const { pendingWrites = [] } of saver.list(config)) {
      for (const [task, channel, value] of pendingWrites) if (channel === '__resume__') writes.push([task, value]);
    }
    expect(writes).toEqual(
      expect.arrayContaining([
        ['00000000-0000-0000-0000-000000000000', 'tea'],
        [expect.stringMatching(/^(?!0{8})[\da-f-]{36}$/), ['tea']],
      ]),
    );
  });

  // Older versions do not copy a tracer.
  it.runIf(library === 'newest')('reports to one of several copies of a tracer (`_getRunStoreKey`)', async () => {
    const manager = pathToFileURL(join(projects, '../node_modules/@langchain/core/dist/callbacks/manager.js')).href;
    const { CallbackManager } = (await import(
      /* @vite-ignore */ manager
    )) as typeof import('@langchain/core/callbacks/manager');
    const collector = { rootId: 'run' } as unknown as ConstructorParameters<typeof RunTracer>[0];
    const tracer = new RunTracer(collector);
    const copy = tracer.copyWithTracingConfig({ metadata: { ls_agent_type: 'root' } });
    const other = new RunTracer({ ...collector } as typeof collector);
    const handlers = [tracer, copy, other] as unknown as Parameters<typeof CallbackManager.configure>[0];
    expect(CallbackManager.configure(handlers)?.handlers).toHaveLength(2);
  });

  it('lists its nodes, and those that `goto` may name (`nodes`, `channels`)', async () => {
    const { exported } = await openGraph('stopping');
    expect(readNodes(exported)).toEqual({
      names: new Set(['__start__', 'first', 'second', 'third']),
      targets: new Set(['first', 'second', 'third']),
    });
  });

  it('prefixes what it adds to the config of a node (`__pregel_`)', async () => {
    const { run } = await openGraph('configured');
    const { said } = (await run({ name: 'ann' })) as { said: string[] };
    const known = ['thread_id', 'checkpoint_id', 'checkpoint_map', 'checkpoint_ns'];
    expect(said.filter((name) => !known.includes(name) && !name.startsWith('__pregel_'))).toEqual([]);
    expect(said).toContain('__pregel_checkpointer');
  });

  it('has the registry of the extras of its schemas (`_metaRegistry`)', async () => {
    const { exported } = await openGraph('described');
    const { _metaRegistry: registry } = exported.builder as { _metaRegistry: { get(schema: unknown): unknown } };
    const { prompt } = await importProject(projects);
    expect(registry.get(prompt)).toMatchObject({ jsonSchemaExtra: { langgraph_type: 'prompt' } });
    const { state_schema } = await readSchemas(exported, join(projects, 'versions/graphs.js'));
    expect(state_schema).toMatchObject({
      properties: {
        prompt: { type: 'string', langgraph_type: 'prompt' },
        tone: { type: 'string', description: 'How to answer.' },
      },
    });
  });

  it('keeps the handlers of an Auth (`~handlerCache`)', async () => {
    const auth = await loadAuth({ path: join(projects, 'versions/graphs.js'), name: 'auth' });
    const identity = await auth.identify({ method: 'GET', url: 'http://localhost/', headers: [] });
    if (!('user' in identity)) throw new Error('not authenticated');
    const { user } = identity;
    expect(user).toMatchObject({ identity: 'ann' });
    const ask = (event: string) => auth.authorize({ event, value: {}, user } as AuthorizationRequest);
    expect(await ask('threads:create')).toMatchObject({ filter: { by: 'event' } });
    expect(await ask('threads:read')).toMatchObject({ filter: { by: 'resource' } });
    expect(await ask('crons:read')).toMatchObject({ filter: { by: 'action' } });
    expect(await ask('crons:create')).toMatchObject({ filter: { by: 'all' } });
  });

  it.runIf(isFullExtent)(
    'passes the suites of the agent server',
    async () => {
      const words = [
        'node_modules/vitest/vitest.mjs',
        'run',
        '--project',
        'embedded',
        ...suitesByLibrary[library].map(suiteFile),
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

/** What the graphs file of the project exports. */
function importProject(projects: string): Promise<Record<string, unknown>> {
  return import(/* @vite-ignore */ pathToFileURL(join(projects, 'versions/graphs.js')).href);
}

function suiteFile(name: string): string {
  return `test/api/agent-server/${name}.test.ts`;
}

/** Waits until a trace has ended. Returns the name of each run's parent, by the name of the run. */
async function readParentNames(langsmith: LangSmith, traceId: string): Promise<Record<string, string | undefined>> {
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
