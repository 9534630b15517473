import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { ShutdownSteps } from '../../../api/command-line/shutdown-steps.ts';
import { startTools } from '../../../api/command-line/start-tools.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { logger } from '../../silent-logger.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../start-api.ts';

export interface ToolsUnderTest {
  readonly url: string;
  readonly api: ApiUnderTest;
  readonly owner: OrganizationUnderTest;
  /** Connects the official client; {@link ToolsUnderTest.close} closes it. */
  connect(key?: string, headers?: Readonly<Record<string, string>>): Promise<Client>;
  /** Calls a tool as the first workspace of the owner, and returns the members of its result. */
  // biome-ignore lint/suspicious/noExplicitAny: each tool has its own result.
  call(name: string, args?: Record<string, unknown>, key?: string): Promise<any>;
  /** Sends a request to the main API with the key of the first workspace, and returns the body of its response. */
  // biome-ignore lint/suspicious/noExplicitAny: each operation has its own response.
  ask(method: 'GET' | 'POST' | 'PATCH', url: string, payload?: object): Promise<any>;
  close(): Promise<void>;
}

export interface ToolServerOptions {
  readonly config?: Partial<Config>;
  /** The tool server is alone, as in `runlake tools`. */
  readonly isAlone?: boolean;
}

/** A tool server on a free port, with the main API and the stores of its own. */
export async function startToolServer(options: ToolServerOptions = {}): Promise<ToolsUnderTest> {
  const api = await startApi({ config: { toolsPort: 0, drainTimeoutMs: 1_000, ...options.config } });
  const owner = await addOrganization(api.database, 'owner');
  const ends = new ShutdownSteps();
  const { services, server } = api;
  const { config } = services;
  const mainApi = options.isAlone ? undefined : server;
  const started = { config, logger, services, mainApi, endpoint: 'http://main.example:1984' };
  const { url } = await startTools(started, ends);
  const clients: Client[] = [];

  async function connect(key = owner.workspaceKeys[0], headers: Readonly<Record<string, string>> = {}) {
    const client = new Client({ name: 'test', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
      requestInit: { headers: { 'LANGSMITH-API-KEY': key, ...headers } },
    });
    await client.connect(transport as Parameters<Client['connect']>[0]);
    clients.push(client);
    return client;
  }

  const connected = new Map<string, Promise<Client>>();
  return {
    url,
    api,
    owner,
    connect,
    async call(name, args = {}, key = owner.workspaceKeys[0]) {
      const client = connected.get(key) ?? connect(key);
      connected.set(key, client);
      return readResult((await (await client).callTool({ name, arguments: args })) as CallToolResult);
    },
    async ask(method, url, payload) {
      const { status, body } = await api.ask(owner.workspaceKeys[0], method, url, payload);
      if (status >= 300) throw new Error(`${method} ${url}: ${status} ${JSON.stringify(body)}`);
      return body;
    },
    async close() {
      await Promise.all(clients.map((client) => client.close()));
      await ends.run(logger);
      await api.close();
    },
  };
}

/** Returns the members of a result; text and structured content must be equal. */
export function readResult({ content, structuredContent, isError }: CallToolResult) {
  const [part, ...others] = content;
  if (part?.type !== 'text' || others.length > 0) throw new Error('a result has one text');
  if (typeof structuredContent?.result === 'string') {
    if (part.text !== structuredContent.result) throw new Error('text and structured content differ');
    return structuredContent;
  }
  if (part.text !== JSON.stringify(structuredContent)) throw new Error('text and structured content differ');
  if ((isError ?? false) !== 'error' in (structuredContent ?? {})) throw new Error('isError and error differ');
  return structuredContent;
}
