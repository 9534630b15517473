import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RoleServers, sharedServers } from '../../crash/servers-of-roles.ts';
import { stackPart } from '../../engines/stack.ts';
import { folderForSuite } from '../../folders.ts';
import { until } from '../../infra/until.ts';
import { type RoleProcess, startRole } from '../../role-process.ts';
import { rootRun } from './send-runs.ts';
import { readResult } from './start-tools.ts';

/** `runlake tools` in a process of its own, beside an installation whose roles are separate processes, with Kafka. */
describe.runIf(stackPart('kafka') && stackPart('registry'))('`runlake tools` alone', () => {
  const apiKey = 'test-key-of-the-tools-under-test';
  let servers: RoleServers;
  const root = folderForSuite();
  let api: RoleProcess;
  let sink: RoleProcess;
  let tools: RoleProcess;
  let endpoint: string;

  const start = (role: Parameters<typeof startRole>[0]) =>
    startRole(role, {
      ...servers.environment,
      RUNLAKE_CLICKHOUSE_URL: servers.clickhouseUrl,
      RUNLAKE_DATABASE_URL: servers.databaseUrl,
      RUNLAKE_SECRET_KEY: 'a secret key for the tests of tools',
      RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
      RUNLAKE_DATA_DIR: join(root, role),
    });

  beforeAll(async () => {
    servers = await sharedServers();
    api = await start('api');
    [sink, tools] = await Promise.all([start('ingest'), start('tools')]);
    const findEndpoint = () => /Runlake serves tools at (http:\S+\/mcp)/.exec(tools.output())?.[1];
    // The lines of the start may come in several parts.
    await until('the role prints its address', () => findEndpoint() !== undefined);
    endpoint = findEndpoint() ?? '';
  }, 240_000);
  afterAll(async () => {
    await Promise.all([tools, api, sink].map((role) => role?.end()));
    await servers?.release();
  });

  async function connect(): Promise<Client> {
    const client = new Client({ name: 'test', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(endpoint), {
      requestInit: { headers: { 'LANGSMITH-API-KEY': apiKey } },
    });
    await client.connect(transport as Parameters<Client['connect']>[0]);
    return client;
  }

  it('reads what the other roles store', async () => {
    const sent = await fetch(`${api.url}/runs/batch`, {
      method: 'POST',
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
      body: JSON.stringify({ post: [rootRun('kafka', { inputs: { text: 'from another process' } })] }),
    });
    expect(sent.status).toBe(202);
    const client = await connect();
    const fetchRuns = async () => {
      const args = { project_name: 'kafka', limit: 1, page_number: 1 };
      return readResult((await client.callTool({ name: 'fetch_runs', arguments: args })) as CallToolResult);
    };
    let result = await fetchRuns();
    const isStored = async () => {
      result = await fetchRuns();
      return Array.isArray(result?.runs) && result.runs.length > 0;
    };
    await until('the sink has stored the run', isStored);
    expect(result).toMatchObject({ runs: [{ inputs: { text: 'from another process' } }], total_pages: 1 });
    await client.close();
  });

  it('serves health, readiness and metrics, and stops cleanly beside an open session', async () => {
    const health = await fetch(new URL('/health', endpoint));
    expect([health.status, await health.text()]).toEqual([200, 'Runlake tool server is running']);
    expect((await fetch(new URL('/ready', endpoint))).status).toBe(200);
    expect((await fetch(new URL('/ready', tools.url))).status).toBe(200);
    const client = await connect();
    expect(await tools.end()).toBe(0);
    await client.close();
    // The other roles go on.
    expect((await fetch(`${api.url}/ok`)).status).toBe(200);
  });
});
