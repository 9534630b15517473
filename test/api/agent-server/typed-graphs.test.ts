import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client as McpClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import type { GraphSource } from '../../../pipelines/agents/graphs/graphs-file.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { readTypesInBackground } from '../../../pipelines/agents/schemas/read-types-in-background.ts';
import { encodeFrame, pipeDescriptor } from '../../../pipelines/agents/workers/frames.ts';
import { folderForSuite } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Schemas that only the TypeScript compiler can derive. */

const folder = folderForSuite();
const step = { title: 'pack', steps: [{ title: 'find the bag', done: true, steps: [] }] };
const agent = forSuite(() =>
  startAgentServer({ project: 'typed', config: { dataDir: folder, agentsTypesSeconds: 120 } }),
);

const getGraphSchemas = (graph: string) => agent.client.assistants.getSchemas(graph);
const read = (graph: string) =>
  until(`the types of ${graph} are read`, async () => (await getGraphSchemas(graph)).state_schema != null, 100_000);

function accepts(schema: unknown, value: unknown): boolean {
  return new Ajv({ strict: false, formats: { 'date-time': true } }).validate(schema as object, value);
}

describe('a graph with typed state', () => {
  it('has its schemas after its types were read', { timeout: 120_000 }, async () => {
    await read('nested');
    const schemas = await getGraphSchemas('annotated');
    const { input_schema: input, output_schema: output, state_schema: state, context_schema: context } = schemas;
    expect(Object.keys(input?.properties ?? {})).toEqual(['topic', 'kind']);
    expect([input?.required, Object.keys(output?.properties ?? {})]).toEqual([undefined, ['steps']]);
    expect(state?.properties).toMatchObject({
      topic: { type: 'string', description: 'Subject of the plan.' },
      kind: { type: 'string', enum: ['trip', 'meal'] },
      steps: { type: 'array' },
      prices: { type: 'object', additionalProperties: { type: 'number' } },
      urgent: { type: 'boolean' },
      anything: {},
    });
    expect(Object.keys(state?.properties ?? {})).not.toContain('onDone');
    expect(context?.properties).toMatchObject({
      tone: { type: 'string', enum: ['dry', 'warm'] },
      depth: { type: 'number' },
    });
    expect(schemas.config_schema).toEqual(context);
    for (const schema of [input, output, state, context])
      expect(schema).toMatchObject({ $schema: 'http://json-schema.org/draft-07/schema#' });

    const whole = { topic: 'a', steps: [step], due: null, place: [1, 2], prices: { a: 1 }, urgent: true, anything: 1 };
    expect(accepts(state, whole)).toBe(true);
    expect(accepts(state, { ...whole, due: '2026-11-22T10:00:00.000Z' })).toBe(true);
    expect(accepts(input, { topic: 'a', kind: 'trip' })).toBe(true);
    for (const wrong of [{ place: [1] }, { prices: { a: 'much' } }, { steps: [{ title: 'x', steps: [{}] }] }]) {
      expect(accepts(state, { ...whole, ...wrong })).toBe(false);
    }
    expect(accepts(input, { kind: 'war' })).toBe(false);
  });

  it('may be a builder or a function that returns a graph, and runs like any other', { timeout: 120_000 }, async () => {
    for (const graph of ['builder', 'made']) {
      await read(graph);
      expect(await getGraphSchemas(graph)).toEqual({ ...(await getGraphSchemas('annotated')), graph_id: graph });
    }
    const values = await agent.client.runs.wait(null, 'made', { input: { topic: 'a trip' } });
    expect(accepts((await getGraphSchemas('made')).output_schema, values)).toBe(true);
  });

  it('returns its subgraphs, including nested ones', { timeout: 120_000 }, async () => {
    await read('nested');
    const subgraphs = await agent.client.assistants.getSubgraphs('nested', { recurse: true });
    expect(Object.keys(subgraphs)).toEqual(['child', 'child|characters']);
    expect(subgraphs.child?.state_schema?.properties).toEqual({ words: { type: 'array', items: { type: 'string' } } });
    expect(subgraphs['child|characters']?.output_schema?.properties).toEqual({ characters: { type: 'number' } });
  });

  it('has subgraphs at each depth, also if they are created where they are added', { timeout: 120_000 }, async () => {
    await read('inlined');
    const subgraphs = await agent.client.assistants.getSubgraphs('inlined', { recurse: true });
    const fields = Object.entries(subgraphs).map(([name, { state_schema: state }]) => [
      name,
      Object.keys(state?.properties ?? {}),
    ]);
    expect(Object.fromEntries(fields)).toMatchObject({
      plan: ['topic'],
      'plan|inner': expect.arrayContaining(['topic', 'kind', 'steps']),
      pages: ['pages'],
      'pages|words': ['words'],
      'pages|words|characters': ['characters'],
    });
  });

  it('exposes its input in tools and cards, with messages in their wire format', { timeout: 120_000 }, async () => {
    await read('talking');
    const headers = { 'x-api-key': agent.owner.adminKey };
    const mcp = new McpClient({ name: 'test', version: '1' });
    const url = new URL(`${agent.url}/mcp`);
    await mcp.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }) as never);
    const tool = (await mcp.listTools()).tools.find(({ name }) => name === 'talking');
    await mcp.close();
    const sent = { messages: [{ type: 'human', content: 'hello' }] };
    expect([accepts(tool?.inputSchema, sent), accepts(tool?.inputSchema, { messages: 'hello' })]).toEqual([
      true,
      false,
    ]);
    const card = await agent.ask('GET', '/.well-known/agent-card.json?assistant_id=talking');
    const { skills } = (await card.json()) as { skills: { metadata: { inputSchema: unknown } }[] };
    expect(accepts(skills[0]?.metadata.inputSchema, sent)).toBe(true);
    const state = await agent.client.runs.wait(null, 'talking', { input: sent });
    expect(accepts((await getGraphSchemas('talking')).output_schema, state)).toBe(true);
  });

  it('returns no schemas if there are no types', { timeout: 120_000 }, async () => {
    const nothing = {
      input_schema: null,
      output_schema: null,
      state_schema: null,
      config_schema: null,
      context_schema: null,
    };
    await read('talking');
    for (const graph of ['loose', 'untyped'])
      expect(await getGraphSchemas(graph)).toEqual({ graph_id: graph, ...nothing });
    expect(await getGraphSchemas('validated')).toMatchObject({
      state_schema: { properties: { topic: { type: 'string' } } },
    });
  });
});

describe('a graph with zod schemas', () => {
  it('includes what withLangGraph adds to its schemas, from any copy of the library', async () => {
    const { state_schema: state, input_schema: input } = await getGraphSchemas('extended');
    for (const schema of [state, input]) {
      expect(schema?.properties).toMatchObject({
        prompt: { type: 'string', description: 'What to ask.', langgraph_type: 'prompt' },
        tone: { type: 'string', enum: ['dry', 'warm'] },
      });
    }
  });
});

describe('reading of types', () => {
  const projects = fileURLToPath(new URL('../../agents/projects/typed/', import.meta.url));
  const buildGraphSource = (path: string, graphId = 'graph'): GraphSource => ({
    graphId,
    path,
    name: 'graph',
    description: null,
  });

  /** Reads types as the server does, for graphs without runtime schemas. `waitUntilDone` resolves to the logged warnings. */
  function startReading(graphs: GraphSource[], options: { limitMs?: number; heapMegabytes?: number } = {}) {
    const warnings: Record<string, string>[] = [];
    const logger = createLogger('silent', 'test');
    logger.warn = ((about: Record<string, string>) => void warnings.push(about)) as never;
    const pool = { query: async () => JSON.stringify({ input_schema: null, output_schema: null, state_schema: null }) };
    const cacheFolder = join(folder, 'kept');
    const types = readTypesInBackground({
      graphs,
      pool,
      cacheFolder,
      limitMs: 100_000,
      heapMegabytes: 1_024,
      logger,
      ...options,
    });
    const isDone = () =>
      graphs.every(({ graphId }) => types.of(graphId) ?? warnings.some(({ graph }) => graph === graphId));
    const waitUntilDone = async () => {
      await until('all types are read or given up', isDone, 110_000);
      await types.stop();
      return warnings;
    };
    return { pool, types, waitDone: waitUntilDone };
  }

  async function readTypes(graphs: GraphSource[], options: { limitMs?: number; heapMegabytes?: number } = {}) {
    const { types, waitDone } = startReading(graphs, options);
    return { types, warnings: await waitDone() };
  }

  it('is cached while no file has changed', { timeout: 120_000 }, async () => {
    const project = join(folder, 'project');
    mkdirSync(project, { recursive: true });
    const linked = join(project, 'state.ts');
    const types = (field: string) => writeFileSync(linked, `export type State = { ${field}: string };\n`);
    types('before');
    writeFileSync(
      join(project, 'graph.ts'),
      `import type { State } from './state.ts';
       type Graph = { lg_is_pregel: true; '~InputType': State; '~OutputType': State };
       export declare const graph: Graph;`,
    );
    writeFileSync(join(project, 'package.json'), '{"type":"module"}');
    mkdirSync(join(project, 'node_modules'), { recursive: true });
    const compiler = fileURLToPath(new URL('../../../node_modules/typescript/package.json', import.meta.url));
    const shim = join(project, 'node_modules', 'typescript');
    mkdirSync(shim, { recursive: true });
    // Counts how often the compiler is loaded.
    const count = join(project, 'asked');
    writeFileSync(join(shim, 'package.json'), '{"name":"typescript","version":"0.0.0","main":"index.cjs"}');
    writeFileSync(
      join(shim, 'index.cjs'),
      `require('node:fs').appendFileSync(${JSON.stringify(count)}, 'x');
       module.exports = require(${JSON.stringify(join(compiler, '..'))});`,
    );
    const source = buildGraphSource(join(project, 'graph.ts'));
    const readStateFields = async () => {
      const { types, warnings } = await readTypes([source]);
      expect(warnings).toEqual([]);
      const { state_schema: state } = types.of('graph')!.schemas;
      return Object.keys((state as { properties: object }).properties);
    };
    expect([await readStateFields(), await readStateFields(), readFileSync(count, 'utf8')]).toEqual([
      ['before'],
      ['before'],
      'x',
    ]);
    types('after');
    expect([await readStateFields(), readFileSync(count, 'utf8')]).toEqual([['after'], 'xx']);
    for (const file of readdirSync(join(folder, 'kept')))
      expect(statSync(join(folder, 'kept', file)).size).toBeGreaterThan(0);
  });

  it('is awaited until the graph is read or given up, and no longer than the given timeout', {
    timeout: 120_000,
  }, async () => {
    rmSync(join(folder, 'kept'), { recursive: true, force: true });
    const { pool, types, waitDone } = startReading([
      buildGraphSource(join(projects, 'talking.ts'), 'read'),
      { ...buildGraphSource(join(projects, 'talking.ts'), 'unnamed'), name: 'nothing' },
    ]);
    expect((await describeGraph({ pool, types }, 'read', {})).input_schema).toBeNull();
    const [found, unnamed] = await Promise.all([
      describeGraph({ pool, types }, 'read', {}, 100_000),
      types.waitFor('unnamed', 100_000),
    ]);
    expect(found.input_schema).toMatchObject({ type: 'object' });
    expect([unnamed, await types.waitFor('foreign', 100_000)]).toEqual([undefined, undefined]);
    await waitDone();
    const stopped = startReading([buildGraphSource(join(projects, 'nested.ts'), 'left')]);
    const pending = stopped.types.waitFor('left', 100_000);
    await stopped.types.stop();
    expect(await pending).toBeUndefined();
  });

  it('logs a failure once per graph, and does not affect the others', { timeout: 120_000 }, async () => {
    const without = join(folder, 'without');
    mkdirSync(without, { recursive: true });
    writeFileSync(join(without, 'graph.ts'), 'export const graph = 1;');
    const { types, warnings } = await readTypes([
      buildGraphSource(join(without, 'graph.ts'), 'alone'),
      buildGraphSource(join(projects, 'untyped.ts'), 'untyped'),
      { ...buildGraphSource(join(projects, 'talking.ts'), 'unnamed'), name: 'nothing' },
      buildGraphSource(join(projects, 'talking.ts'), 'talking'),
    ]);
    expect(warnings).toEqual([
      { graph: 'alone', reason: expect.stringContaining("the package 'typescript' is not installed in its project") },
      { graph: 'untyped', reason: expect.stringContaining("the type of 'graph'") },
      { graph: 'unnamed', reason: expect.stringContaining("exports no 'nothing'") },
    ]);
    expect(types.of('talking')?.schemas.input_schema).toMatchObject({ type: 'object' });
  });

  it('ends if the compiler of a project names another graph, and affects no other', { timeout: 120_000 }, async () => {
    const forgedProjectFolder = join(folder, 'forging');
    const compiler = join(forgedProjectFolder, 'node_modules', 'typescript');
    mkdirSync(compiler, { recursive: true });
    writeFileSync(join(forgedProjectFolder, 'graph.ts'), 'export const graph = 1;');
    const forged = Buffer.concat(encodeFrame({ kind: 'unread', graphId: 'foreign', reason: 'forged' }));
    // Waits inside the compiler, so that the process reports nothing else.
    writeFileSync(
      join(compiler, 'index.js'),
      `require('node:fs').writeSync(${pipeDescriptor}, Buffer.from('${forged.toString('base64')}', 'base64'));
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);`,
    );
    const { types, warnings } = await readTypes([
      buildGraphSource(join(forgedProjectFolder, 'graph.ts'), 'forging'),
      buildGraphSource(join(projects, 'talking.ts'), 'talking'),
    ]);
    expect(warnings).toEqual([{ graph: 'forging', reason: expect.stringContaining('a graph that it was not given') }]);
    expect(types.of('talking')?.schemas.input_schema).toMatchObject({ type: 'object' });
    expect(types.of('foreign')).toBeUndefined();
  });

  it('ends at its memory limit or its timeout', { timeout: 120_000 }, async () => {
    const graphs = [
      buildGraphSource(join(projects, 'nested.ts'), 'one'),
      buildGraphSource(join(projects, 'annotated.ts'), 'two'),
    ];
    rmSync(join(folder, 'kept'), { recursive: true, force: true });
    const { warnings } = await readTypes(graphs, { heapMegabytes: 64 });
    expect(warnings.map(({ graph, reason }) => [graph, /its process ended by/.test(reason!)])).toEqual([
      ['one', true],
      ['two', true],
    ]);
    const late = await readTypes(graphs, { limitMs: 100 });
    expect(late.warnings).toMatchObject([
      { graph: 'one', reason: 'it took longer than 0.1 s' },
      { graph: 'two', reason: 'it took longer than 0.1 s' },
    ]);
  });
});
