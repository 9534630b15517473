import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ErrorCode } from '@modelcontextprotocol/sdk/types.js';
import { describe, expect, it, vi } from 'vitest';
import { createAssistant } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { forSuite } from '../../for-suite.ts';
import { addOrganization } from '../start-api.ts';
import { startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer());

/** Connects the official client; it is closed at the end of the test. */
async function connect(path = '/mcp', key = agent.owner.adminKey): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`${agent.url}${path}`), {
    requestInit: { headers: { 'x-api-key': key } },
  });
  await client.connect(transport as Parameters<Client['connect']>[0]);
  return client;
}

const both = { accept: 'application/json, text/event-stream' };
const post = (body: unknown, headers: Record<string, string> = both) => agent.ask('POST', '/mcp', body, headers);
const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };

describe('tools', () => {
  it('are the assistants, with their input schemas', async () => {
    const name = 'Zoo guide (näht)';
    const [first, second] = await Promise.all(
      ['first', 'second'].map((description) => agent.client.assistants.create({ graphId: 'typed', name, description })),
    );
    const client = await connect();
    const { tools } = await client.listTools();
    const named = (wanted: string) => tools.find((tool) => tool.name === wanted);
    expect(named('echo')).toMatchObject({
      description: 'Answers with what it was told',
      inputSchema: { type: 'object' },
    });
    expect(named('typed')?.inputSchema).toMatchObject({
      properties: { topic: { type: 'string' } },
    });
    expect(tools.filter(({ description }) => !description)).toEqual([]);
    expect(named('typed')?.description).toBe("Runs the assistant 'typed' of the graph 'typed'");
    const [later] = [first, second].filter(
      (one) =>
        tools.find((tool) => tool.name.startsWith('Zoo') && tool.description === one?.description)?.name !==
        'Zoo_guide__n_ht_',
    );
    expect(
      tools
        .filter((tool) => tool.name.startsWith('Zoo'))
        .map((tool) => tool.name)
        .sort(),
    ).toEqual(['Zoo_guide__n_ht_', `Zoo_guide__n_ht_-${later?.assistant_id.slice(-12)}`]);
    await client.close();
  });

  it('are listed in pages', async () => {
    const { database, owner } = agent;
    for (let number = 0; number < 100; number += 1) {
      await createAssistant(
        database,
        owner.id,
        {
          graphId: 'typed',
          name: `page ${number}`,
          metadata: {},
          ifExists: 'raise',
        },
        { maxAssistants: 1_000 },
      );
    }
    const client = await connect('/mcp/');
    const first = await client.listTools();
    const second = await client.listTools({ cursor: first.nextCursor });
    expect([first.tools.length, second.nextCursor]).toEqual([100, undefined]);
    const names = [...first.tools, ...second.tools].map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(names).toContain('page_99');
    await expect(client.listTools({ cursor: 'elsewhere' })).rejects.toMatchObject({ code: -32602 });
    await client.close();
  });
});

describe('a call', () => {
  it('responds with the output of a run and leaves no rows behind', async () => {
    const client = await connect('/mcp/');
    expect(await client.ping()).toEqual({});
    const messages = [{ role: 'user', content: 'hello' }];
    const { content, structuredContent, isError } = await client.callTool({ name: 'echo', arguments: { messages } });
    expect(isError).toBeUndefined();
    expect(structuredContent).toMatchObject({ messages: [{ content: 'hello' }, { content: 'echo: hello' }] });
    const [part] = content as { type: string; text: string }[];
    expect(JSON.parse(part?.text ?? '')).toEqual(structuredContent);
    await client.close();
    expect(await agent.client.threads.search()).toEqual([]);
  });

  it('reports why it failed', async () => {
    const client = await connect();
    const failed = await client.callTool({ name: 'misbehave', arguments: { how: 'fail' } });
    expect(failed).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: 'TypeError: the node failed on purpose' }],
    });
    await expect(client.callTool({ name: 'no such tool' })).rejects.toMatchObject({ code: -32602 });
    await client.close();
  });

  it('cancels its run when the connection closes', async () => {
    const { database, owner } = agent;
    const runs = () =>
      database.query<{ status: string }>('SELECT status FROM agents.runs WHERE deployment_id = $1', [owner.id]);
    const client = await connect();
    const call = client.callTool({ name: 'steps', arguments: { steps: 1, pauseMs: 60_000 } }).catch(() => undefined);
    await vi.waitFor(async () => expect(await runs()).toMatchObject([{ status: 'running' }]), { timeout: 10_000 });
    await client.close();
    await call;
    await vi.waitFor(async () => expect(await runs()).toEqual([]), { timeout: 10_000 });
  });
});

describe('an invalid request', () => {
  it.each([
    ['an Accept header without event streams', list, { accept: 'application/json' }, 406, -32000],
    ['a body that is not a message', { hello: 'world' }, both, 400, -32700],
    ['an unknown protocol version', list, { ...both, 'mcp-protocol-version': '1999-01-01' }, 400, -32000],
    ['an empty list', [], both, 400, -32600],
    ['a list as arguments', { ...list, method: 'tools/call', params: { name: 'x', arguments: [] } }, both, 200, -32602],
    ['an unknown method', { ...list, method: 'animals/list' }, both, 200, -32601],
  ])('%s', async (_, body, headers, status, code) => {
    const answer = await post(body, headers);
    expect([answer.status, ((await answer.json()) as { error: { code: number } }).error.code]).toEqual([status, code]);
  });

  it('that is not JSON has a protocol error', async () => {
    const headers = { ...both, 'content-type': 'application/json', 'x-api-key': agent.owner.adminKey };
    const answer = await fetch(`${agent.url}/mcp`, { method: 'POST', headers, body: '{"jsonrpc": ' });
    expect([answer.status, await answer.json()]).toMatchObject([200, { error: { code: -32700 } }]);
  });

  it('has the HTTP status of its error and an empty body', async () => {
    const notified = await post({ jsonrpc: '2.0', method: 'notifications/initialized' });
    expect([notified.status, await notified.text()]).toEqual([202, '']);
    expect((await agent.ask('GET', '/mcp', undefined, both)).status).toBe(405);
    expect((await agent.ask('DELETE', '/mcp')).status).toBe(404);
    expect((await post('x'.repeat(17 * 1024 * 1024))).status).toBe(413);
  });

  it('rejects a key of another organisation', async () => {
    const other = await addOrganization(agent.database, 'other');
    await expect(connect('/mcp', other.adminKey)).rejects.toThrow('DEPLOYMENT_FORBIDDEN');
  });
});

it('a call that the stop of the server ends gets an error that its client understands', async () => {
  const stopping = await startAgentServer({ shareStoresWith: agent });
  const client = new Client({ name: 'test', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`${stopping.url}/mcp`), {
    requestInit: { headers: { 'x-api-key': stopping.owner.adminKey } },
  });
  await client.connect(transport as Parameters<Client['connect']>[0]);
  const call = client.callTool({ name: 'steps', arguments: { steps: 1, pauseMs: 60_000 } }).catch((error) => error);
  try {
    const running = () =>
      stopping.database.query("SELECT FROM agents.runs WHERE deployment_id = $1 AND status = 'running'", [
        stopping.owner.id,
      ]);
    await vi.waitFor(async () => expect(await running()).toHaveLength(1), 10_000);
  } finally {
    await stopping.close();
  }
  expect(await call).toMatchObject({
    code: ErrorCode.InternalError,
    message: expect.stringContaining('The server is'),
  });
  await client.close();
});

const flags = async () => ((await (await agent.ask('GET', '/info')).json()) as { flags: object }).flags;

it('responds 404 if langgraph.json disables MCP', async () => {
  const { agents } = agent.services;
  const original = agents.protocols;
  Object.assign(agents, { protocols: { mcp: false, a2a: false } });
  try {
    expect((await post(list)).status).toBe(404);
    expect(await flags()).toMatchObject({ mcp: false, a2a: false });
  } finally {
    Object.assign(agents, { protocols: original });
  }
  expect(await flags()).toMatchObject({ mcp: true, a2a: true });
});
