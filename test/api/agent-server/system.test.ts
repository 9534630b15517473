import { Value } from 'typebox/value';
import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer({ project: 'faulty', config: { serveMetrics: true } }));

it('reports liveness without a key, and readiness by its database', async () => {
  for (const path of ['/ok', '/ok?check_db=1', '/ok/']) {
    const answer = await fetch(`${agent.url}${path}`);
    expect([answer.status, await answer.json()]).toEqual([200, { ok: true }]);
  }
});

it('reports its capabilities, and the errors of graphs that fail to load', async () => {
  const info = await (await fetch(`${agent.url}/info`)).json();
  expect(info).toMatchObject({ context: 'js', version: expect.any(String), flags: { assistants: true } });
  expect(info).toMatchObject({ langgraph_js_version: expect.stringMatching(/^1\.\d+\.\d+/) });
  expect(JSON.stringify(info)).not.toContain('missing');
  const answer = await agent.ask('GET', '/assistants/missing/schemas');
  expect([answer.status, await answer.json()]).toMatchObject([422, { code: 'GRAPH_UNUSABLE' }]);
});

it('gives system assistants the config and the context that LANGGRAPH_CONFIG names', async () => {
  const config = { configurable: { style: 'dry' }, recursion_limit: 7 };
  expect(await agent.client.assistants.get('good')).toMatchObject({ config, context: { tone: 'warm' }, version: 1 });
  const { kwargs } = (await agent.client.runs.create(null, 'good', { input: {} })) as unknown as { kwargs: object };
  expect(kwargs).toMatchObject({ config, context: { tone: 'warm' } });
});

it('serves metrics in both formats', async () => {
  const text = await fetch(`${agent.url}/metrics`);
  expect(text.headers.get('content-type')).toContain('text/plain');
  expect(await text.text()).toContain('runlake_http_request_duration_seconds');
  const json = await fetch(`${agent.url}/metrics?format=json`);
  expect(json.headers.get('content-type')).toContain('application/json');
  const metrics = await json.json();
  expect(metrics).toContainEqual(expect.objectContaining({ name: 'runlake_http_request_duration_seconds' }));
  const { paths } = (await (await fetch(`${agent.url}/openapi.json`)).json()) as {
    paths: Record<string, { get: { responses: Record<string, { content: Record<string, { schema: object }> }> } }>;
  };
  const content = paths['/metrics']?.get.responses['200']?.content ?? {};
  expect(Object.keys(content)).toEqual([text.headers.get('content-type'), json.headers.get('content-type')]);
  const { schema } = Object.values(content)[1] as { schema: object };
  expect([...Value.Errors(schema, metrics)]).toEqual([]);
  expect((await fetch(`${agent.url}/metrics?format=xml`)).status).toBe(422);
});

it('reports pending and running runs, free slots, and the results of runs', async () => {
  const readMetrics = async () => (await fetch(`${agent.url}/metrics`)).text();
  const { client } = agent;
  const { thread_id: id } = await client.threads.create();
  await client.runs.wait(id, 'good', { input: {} });
  await client.runs.create(id, 'good', { input: {}, afterSeconds: 600 });
  // The gauges follow the end of a run: it is stored before its slot is free.
  await expect
    .poll(async () => (await readMetrics()).match(/^runlake_agents_(?:unfinished_runs|run_slots)\{.*$/gm)?.sort(), {
      timeout: 20_000,
    })
    .toEqual([
      'runlake_agents_run_slots{state="free"} 16',
      'runlake_agents_run_slots{state="used"} 0',
      'runlake_agents_unfinished_runs{status="pending"} 1',
      'runlake_agents_unfinished_runs{status="running"} 0',
    ]);
  expect(await readMetrics()).toMatch(/^runlake_agents_runs_total\{status="success"\} [1-9]/m);
  await client.threads.delete(id);
});

it('serves its description', async () => {
  const description = (await (await fetch(`${agent.url}/openapi.json`)).json()) as { info: object; paths: object };
  expect(description.info).toMatchObject({ title: 'Runlake agent server' });
  expect(Object.keys(description.paths)).toContain('/threads/{thread_id}/state');
  expect((await fetch(`${agent.url}/docs`)).status).toBe(200);
});

it('truncates data only if the operator allows it', async () => {
  const { client, services } = agent;
  const { thread_id: id } = await client.threads.create();
  const { assistant_id: assistantId } = await client.assistants.create({ graphId: 'good' });
  for (const name of ['checkpointer', 'checkpoint', 'checkpoints']) {
    await client.runs.wait(id, 'good', { input: {} });
    expect(await client.threads.getHistory(id)).not.toEqual([]);
    expect((await agent.ask('POST', '/internal/truncate', { [name]: true })).status).toBe(204);
    expect(await client.threads.getHistory(id)).toEqual([]);
  }
  const answer = await agent.ask('POST', '/internal/truncate', { threads: true, runs: true, assistants: true });
  expect(answer.status).toBe(204);
  for (const path of [`/threads/${id}`, `/assistants/${assistantId}`]) {
    expect((await agent.ask('GET', path)).status).toBe(404);
  }
  expect(await client.assistants.get('good')).toMatchObject({ graph_id: 'good' });

  const { config } = services.agents;
  Object.assign(config, { agentsAllowTruncate: false });
  expect((await agent.ask('POST', '/internal/truncate', {})).status).toBe(404);
});

it('accepts large bodies up to its own limit, and names the limit', async () => {
  const maxBodyBytes = agent.services.agents.config.agentsMaxBodyBytes;
  const body = (bytes: number) => ({ metadata: { filler: 'x'.repeat(bytes) } });
  expect((await agent.ask('POST', '/threads', body(10_000_000))).status).toBe(200);
  const answer = await agent.ask('POST', '/threads', body(maxBodyBytes));
  expect([answer.status, await answer.text()]).toEqual([413, expect.stringContaining('RUNLAKE_AGENTS_MAX_BODY_BYTES')]);
});

it.each(['/threads/search', '/threads/count', '/assistants/search', '/runs/crons/search', '/store/items/search'])(
  'accepts only small bodies for %s, which keys that only read can send',
  async (path) => {
    const body = (bytes: number) => ({ filler: 'x'.repeat(bytes), namespace_prefix: [] });
    expect((await agent.ask('POST', path, body(1_000_000))).status).toBe(200);
    expect((await agent.ask('POST', path, body(1_100_000))).status).toBe(413);
  },
);
