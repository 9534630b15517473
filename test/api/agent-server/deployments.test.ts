import { randomUUID } from 'node:crypto';
import type { Client } from '@langchain/langgraph-sdk';
import { WebSocket } from 'undici';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { addOrganizationDeployment } from '../../agents/add-deployment.ts';
import { forSuite } from '../../for-suite.ts';
import { type AgentServerUnderTest, createRequester, startAgentServer } from './start-agent-server.ts';

/**
 * Two agent servers of one organisation, on the same stores: the default deployment in the first workspace, and another
 * deployment in the second. They have different graphs.
 */
const first = forSuite(() => startAgentServer());
let second: AgentServerUnderTest;
/** Clients with the key of each workspace. */
let firstClient: Client;
let secondClient: Client;

beforeAll(async () => {
  const { owner, database } = first;
  const agentsDeployment = await addOrganizationDeployment(database, {
    organizationId: owner.id,
    workspaceId: owner.workspaceIds[1],
  });
  second = await startAgentServer({ project: 'store', shareStoresWith: first, config: { agentsDeployment } });
  [firstClient, secondClient] = [first.clientOf(owner.workspaceKeys[0]), second.clientOf(owner.workspaceKeys[1])];
}, 120_000);
afterAll(async () => {
  await second?.close();
});

async function ended(client: Client, threadId: string, runId: string): Promise<string> {
  const run = () => client.runs.get(threadId, runId);
  await expect.poll(async () => ['pending', 'running'].includes((await run()).status), { timeout: 30_000 }).toBe(false);
  return (await run()).status;
}

describe('two deployments of an organisation', () => {
  it('claim only their own runs', async () => {
    const runs: Promise<string>[] = [];
    for (let round = 0; round < 10; round++) {
      for (const [client, graph] of [[firstClient, 'echo'] as const, [secondClient, 'notes'] as const]) {
        const { thread_id: threadId } = await client.threads.create();
        // With `afterSeconds`, the creating process does not start the run at once, so any process may claim it.
        const { run_id: runId } = await client.runs.create(threadId, graph, { input: {}, afterSeconds: 0.2 });
        runs.push(ended(client, threadId, runId));
      }
    }
    expect(new Set(await Promise.all(runs))).toEqual(new Set(['success']));
  });

  it('serve no metrics by default', async () => {
    const answer = await fetch(`${first.url}/metrics`);
    expect([answer.status, await answer.json()]).toMatchObject([404, { code: 'ROUTE_NOT_FOUND' }]);
  });

  it('are woken only by notifications of their own', async () => {
    const { executor, services, shared } = second;
    const wakeSpies = (['wake', 'checkLeases', 'publishMissingEnds'] as const).map((name) => vi.spyOn(executor, name));
    const notify = (payload: string) =>
      shared.stores.database.execute(
        "SELECT pg_notify(channel, $1) FROM unnest(ARRAY['agent_runs', 'agent_cancels', 'agent_ends']) AS channel",
        [payload],
      );
    const readCalls = () => wakeSpies.map(({ mock }) => mock.calls.length);
    onTestFinished(() => {
      for (const spy of wakeSpies) spy.mockRestore();
    });
    // Postgres delivers notifications in commit order: after this one, none of the runs above is on its way.
    await notify(services.agents.deploymentId);
    await expect.poll(() => Math.min(...readCalls()), { timeout: 10_000 }).toBeGreaterThan(0);
    for (const spy of wakeSpies) spy.mockClear();
    for (let round = 0; round < 5; round++) await notify(first.services.agents.deploymentId);
    await notify(services.agents.deploymentId);
    await expect.poll(readCalls, { timeout: 10_000 }).toEqual([1, 1, 1]);
  });

  it('have separate threads and streams under the same ids', async () => {
    const threadId = randomUUID();
    await firstClient.threads.create({ threadId, metadata: { of: 'first' } });
    await secondClient.threads.create({ threadId, metadata: { of: 'second' } });
    expect(await firstClient.threads.get(threadId)).toMatchObject({ metadata: { of: 'first' } });
    expect(await secondClient.threads.get(threadId)).toMatchObject({ metadata: { of: 'second' } });

    const stop = new AbortController();
    const joined = firstClient.threads.joinStream(threadId, { streamMode: ['run_modes'], signal: stop.signal });
    const seen: unknown[] = [];
    const reading = (async () => {
      for await (const event of joined) seen.push(event.data);
    })().catch(() => undefined);
    await secondClient.runs.wait(threadId, 'notes', { input: { write: { animal: 'okapi' } } });
    await firstClient.runs.wait(threadId, 'echo', { input: { messages: [{ role: 'user', content: 'zebra' }] } });
    await expect.poll(() => JSON.stringify(seen), { timeout: 20_000 }).toContain('zebra');
    stop.abort();
    await reading;
    expect(JSON.stringify(seen)).not.toContain('okapi');
    expect(JSON.stringify(await secondClient.threads.getState(threadId))).toContain('okapi');
    expect(JSON.stringify(await secondClient.threads.getState(threadId))).not.toContain('zebra');
    expect(JSON.stringify(await firstClient.threads.getState(threadId))).not.toContain('okapi');
  });

  it('trace their runs into the workspace of the deployment, whichever default workspace a key has', async () => {
    const { owner, shared } = first;
    const readTraceWorkspaces = async (server: AgentServerUnderTest, graph: string) => {
      const { thread_id: threadId } = await server.clientOf(owner.adminKey).threads.create();
      const { run_id: runId } = await server.clientOf(owner.adminKey).runs.create(threadId, graph, { input: {} });
      const rows = () =>
        shared.stores.clickhouse.query<{ tenant_id: string }>({
          name: 'test',
          sql: `SELECT DISTINCT toString(tenant_id) AS tenant_id FROM runs WHERE trace_id = '${runId}'`,
        });
      await expect.poll(async () => (await rows()).length, { timeout: 30_000 }).toBeGreaterThan(0);
      return (await rows()).map(({ tenant_id }) => tenant_id);
    };
    expect(await readTraceWorkspaces(first, 'echo')).toEqual([owner.workspaceIds[0]]);
    expect(await readTraceWorkspaces(second, 'notes')).toEqual([owner.workspaceIds[1]]);
  });
});

describe.each(['first', 'second'] as const)('a key of another workspace, at the %s', (which) => {
  const server = () => (which === 'first' ? first : second);
  const getForeignKey = () => first.owner.workspaceKeys[which === 'first' ? 1 : 0];
  const refused = async (answer: Promise<Response>) => {
    const { status, body } = await answer.then(async (got) => ({ status: got.status, body: await got.text() }));
    expect([status, JSON.parse(body).code]).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
  };

  it('is rejected by REST, server-sent events, MCP and A2A', async () => {
    const [own, graph] = which === 'first' ? [firstClient, 'echo'] : [secondClient, 'notes'];
    const { thread_id: threadId } = await own.threads.create();
    const { run_id: runId } = await own.runs.create(threadId, graph, { input: {}, afterSeconds: 60 });
    const ask = createRequester(server().url, getForeignKey());
    const stream = { accept: 'text/event-stream' };
    await refused(ask('GET', `/threads/${threadId}`));
    await refused(ask('DELETE', `/threads/${threadId}`));
    await refused(ask('POST', `/threads/${threadId}/runs/${runId}/cancel`));
    await refused(ask('GET', `/threads/${threadId}/stream`, undefined, stream));
    await refused(ask('GET', `/threads/${threadId}/runs/${runId}/stream`, undefined, stream));
    await refused(ask('POST', `/threads/${threadId}/stream/events`, { channels: ['values'] }, stream));
    const tools = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    await refused(ask('POST', '/mcp', tools, { accept: 'application/json, text/event-stream' }));
    const task = { jsonrpc: '2.0', id: 1, method: 'tasks/cancel', params: { id: runId, contextId: threadId } };
    await refused(ask('POST', `/a2a/${graph}`, task));
    expect((await own.runs.get(threadId, runId)).status).toBe('pending');
    await own.runs.cancel(threadId, runId);
  });

  it('is rejected by a WebSocket', async () => {
    const [own] = which === 'first' ? [firstClient] : [secondClient];
    const { thread_id: threadId } = await own.threads.create();
    const opens = async (key: string) => {
      const url = `${server().url.replace('http', 'ws')}/threads/${threadId}/stream/events`;
      const socket = new WebSocket(url, { headers: { 'x-api-key': key } });
      const opened = await new Promise<boolean>((resolve) => {
        socket.addEventListener('open', () => resolve(true));
        socket.addEventListener('error', () => resolve(false));
      });
      socket.close();
      return opened;
    };
    expect(await opens(getForeignKey())).toBe(false);
    expect(await opens(first.owner.adminKey)).toBe(true);
  });
});
