import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { beforeAll, describe, expect, it } from 'vitest';
import { builtProgram } from '../../built-program.ts';
import { nodeProgram, releases } from '../../docs/node-releases.ts';
import { forSuite } from '../../for-suite.ts';
import { installLocked } from '../../locked-packages.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { readResult, startToolServer } from './start-tools.ts';

/** `runlake tools --stdio`, and stock clients that start it or connect over HTTP. */
const server = forSuite(() => startToolServer());
let endpoint: string;
let key: string;
beforeAll(async () => {
  endpoint = await server.api.listen();
  [key] = server.owner.workspaceKeys;
  await sendRuns(server, [rootRun('stdio', { inputs: { text: 'grüße 😀' } })]);
  await server.api.settled();
});

const variables = () => ({ LANGSMITH_API_KEY: key, LANGSMITH_ENDPOINT: `${endpoint}/api/v1` });

async function connect(environment: Record<string, string>): Promise<Client> {
  const client = new Client({ name: 'test', version: '1' });
  const command = { command: process.execPath, args: [builtProgram, 'tools', '--stdio'] };
  const transport = new StdioClientTransport({ ...command, env: environment, stderr: 'pipe' });
  await client.connect(transport as Parameters<Client['connect']>[0]);
  return client;
}

/** Starts a program; the result has its exit code and its output. */
function startProgram(words: readonly string[], environment: Record<string, string> = {}, node = process.execPath) {
  const env = { PATH: process.env.PATH, HOME: '/nonexistent', ...environment };
  const options = { env, timeout: 60_000, maxBuffer: 64 * 1024 ** 2 };
  const running = promisify(execFile)(node, [...words], options);
  const result = running.then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    (error: { code: number; stdout: string; stderr: string }) => error,
  );
  return { child: running.child, result };
}

const run = (...program: Parameters<typeof startProgram>) => startProgram(...program).result;

describe('over standard input and output', () => {
  it.each(['LANGSMITH', 'RUNLAKE'])('the official client calls tools, with variables of %s', async (prefix) => {
    const client = await connect({ [`${prefix}_API_KEY`]: key, [`${prefix}_ENDPOINT`]: endpoint });
    expect((await client.listTools()).tools).toHaveLength(19);
    const args = { project_name: 'stdio', limit: 1, page_number: 1 };
    const result = readResult((await client.callTool({ name: 'fetch_runs', arguments: args })) as CallToolResult);
    expect(result).toMatchObject({ runs: [{ inputs: { text: 'grüße 😀' } }], total_pages: 1 });
    expect(await client.listResources()).toMatchObject({ resources: [] });
    await client.close();
  });

  it('uses the workspace of LANGSMITH_WORKSPACE_ID', async () => {
    const { owner } = server;
    const client = await connect({
      ...variables(),
      LANGSMITH_API_KEY: owner.adminKey,
      LANGSMITH_WORKSPACE_ID: owner.workspaceIds[1],
    });
    const result = readResult((await client.callTool({ name: 'list_projects', arguments: {} })) as CallToolResult);
    expect(result).toEqual({ projects: [] });
    await client.close();
  });

  it('answers the requests that it has received when standard input ends', async () => {
    const request = (id: number, method: string, params: object) => ({ jsonrpc: '2.0', id, method, params });
    const cancelled = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } };
    const list = (id: number) => request(id, 'tools/call', { name: 'list_projects', arguments: {} });
    const messages = [request(1, 'ping', {}), list(2), cancelled, list(3)];
    const running = startProgram([builtProgram, 'tools', '--stdio'], variables());
    running.child.stdin?.end(messages.map((message) => `${JSON.stringify(message)}\n`).join(''));
    const { code, stdout } = await running.result;
    const answers = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect([code, answers.map(({ id }) => id)]).toEqual([0, [1, 3]]);
    expect(readResult(answers.at(-1).result)).toMatchObject({ projects: [{ name: 'stdio' }] });
  });

  it('answers and logs messages that it cannot read, and ends with an error after one that is too large', async () => {
    const running = startProgram([builtProgram, 'tools', '--stdio'], variables());
    const lines = [
      '{bad',
      '{"jsonrpc":"2.0","id":1.5}',
      '{"jsonrpc":"2.0","id":7,"method":"ping"}',
      'x'.repeat(11 * 1024 ** 2),
    ];
    running.child.stdin?.on('error', () => undefined);
    running.child.stdin?.write(lines.map((line) => `${line}\n`).join(''));
    const { code, stdout, stderr } = await running.result;
    const answers = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(answers).toMatchObject([
      { id: null, error: { code: -32_700 } },
      { id: null, error: { code: -32_600 } },
      { id: 7, result: {} },
    ]);
    expect(stderr).toMatch(/exceeded maximum size of 10485760 bytes/);
    expect(code).toBe(1);
  });

  it('ends when standard output is closed', async () => {
    const running = startProgram([builtProgram, 'tools', '--stdio'], variables());
    const list = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n';
    running.child.stdin?.on('error', () => undefined);
    running.child.stdout?.once('data', () => {
      running.child.stdout?.destroy();
      running.child.stdin?.write(list);
    });
    running.child.stdin?.write(list);
    const { code, stderr } = await running.result;
    expect([code, stderr]).toEqual([0, '']);
  });

  it('starts before its endpoint, and calls say that it is down', async () => {
    const client = await connect({ ...variables(), LANGSMITH_ENDPOINT: 'http://127.0.0.1:9' });
    const result = readResult((await client.callTool({ name: 'list_projects', arguments: {} })) as CallToolResult);
    expect(result).toEqual({
      error:
        'The endpoint http://127.0.0.1:9 cannot be reached: ECONNREFUSED. Check LANGSMITH_ENDPOINT, and that the installation runs.',
    });
    await client.close();
  });

  it.each<[string, Record<string, string>, RegExp]>([
    ['no key', {}, /LANGSMITH_API_KEY is required/],
    ['a wrong key', { LANGSMITH_API_KEY: 'rlk_wrong' }, /does not accept the key in LANGSMITH_API_KEY/],
    ['a wrong endpoint', { LANGSMITH_API_KEY: 'x', LANGSMITH_ENDPOINT: 'here' }, /must be an http or https URL/],
  ])('%s: ends with an error, and prints nothing on standard output', async (_, environment, words) => {
    const given = environment.LANGSMITH_ENDPOINT ? {} : { LANGSMITH_ENDPOINT: endpoint };
    const { code, stdout, stderr } = await run([builtProgram, 'tools', '--stdio'], { ...given, ...environment });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(words);
  });
});

describe('stock clients', () => {
  let packages: string;
  let newerNode: string;
  beforeAll(async () => {
    packages = await installLocked(new URL('clients', import.meta.url).pathname, 'mcp-clients');
    // The inspector needs a newer release than Runlake.
    const release = releases.find(({ version }) => version.startsWith('22.'));
    newerNode = (release && (await nodeProgram(release))) ?? process.execPath;
  }, 240_000);

  const inspect = async (words: readonly string[]) => {
    const program = `${packages}/node_modules/.bin/mcp-inspector`;
    const { code, stdout, stderr } = await run([program, '--cli', ...words], {}, newerNode);
    expect(code, stderr).toBe(0);
    return JSON.parse(stdout) as { tools: object[]; structuredContent: object };
  };

  it('the inspector lists and calls tools over HTTP and standard input', { timeout: 120_000 }, async () => {
    const overHttp = [`${server.url}/mcp`, '--transport', 'http', '--header', `LANGSMITH-API-KEY: ${key}`];
    expect((await inspect([...overHttp, '--method', 'tools/list', '--strict'])).tools).toHaveLength(19);
    const call = ['--method', 'tools/call', '--tool-name', 'list_projects', '--tool-arg', 'limit=1'];
    const expected = { projects: [{ name: 'stdio' }] };
    expect((await inspect([...overHttp, ...call])).structuredContent).toMatchObject(expected);
    const variablesOfClient = Object.entries(variables()).flatMap(([name, value]) => ['-e', `${name}=${value}`]);
    const overStdio = [...variablesOfClient, process.execPath, builtProgram, 'tools', '--stdio'];
    expect((await inspect([...overStdio, ...call])).structuredContent).toMatchObject(expected);
  });

  it("LangChain's adapters load and call the tools", { timeout: 120_000 }, async () => {
    const { MultiServerMCPClient } = await import(`${packages}/node_modules/@langchain/mcp-adapters/dist/index.js`);
    const client = new MultiServerMCPClient({
      mcpServers: {
        http: { transport: 'http', url: `${server.url}/mcp`, headers: { 'LANGSMITH-API-KEY': key } },
        stdio: {
          transport: 'stdio',
          command: process.execPath,
          args: [builtProgram, 'tools', '--stdio'],
          env: variables(),
        },
      },
    });
    for (const name of ['http', 'stdio']) {
      const tools = (await client.getTools(name)) as { name: string; invoke(args: object): Promise<unknown> }[];
      expect(tools).toHaveLength(19);
      const result = await tools
        .find((tool) => tool.name.endsWith('fetch_runs'))
        ?.invoke({ project_name: 'stdio', limit: 5 });
      expect(JSON.stringify(result)).toContain('grüße 😀');
    }
    await client.close();
  });
});
