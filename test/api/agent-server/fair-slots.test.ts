import { Client } from '@langchain/langgraph-sdk';
import { afterEach, expect, it } from 'vitest';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/**
 * Fairness between two callers: one occupies all slots with sleeping runs and has more pending runs; the runs of the
 * other caller must still start.
 */

let server: AgentServerUnderTest | undefined;
afterEach(async () => {
  await server?.close();
  server = undefined;
});

const sleepingRun = { input: { steps: 1, pauseMs: 600_000 } };
const config = { agentsRunsPerWorker: 4 };

async function running({ database, owner }: AgentServerUnderTest): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM agents.runs WHERE deployment_id = $1 AND status = 'running'`,
    [owner.id],
  );
  return row?.count as number;
}

/** Occupies all slots and leaves twice as many runs pending. */
async function flood(of: AgentServerUnderTest, client: Client): Promise<void> {
  for (let made = 0; made < 12; made += 1) await client.runs.create(null, 'steps', sleepingRun);
  await expect.poll(() => running(of), { timeout: 20_000 }).toBe(4);
}

it('starts runs of another key, one after the other', { timeout: 120_000 }, async () => {
  server = await startAgentServer({ config });
  await flood(server, server.client);
  const quietClient = server.clientOf(server.owner.workspaceKeys[0]);
  for (let asked = 0; asked < 3; asked += 1) {
    const messages = [{ role: 'human', content: `hi ${asked}` }];
    const state = await quietClient.runs.wait(null, 'echo', { input: { messages } });
    expect(JSON.stringify(state)).toContain(`echo: hi ${asked}`);
  }
  const { thread_id: threadId } = await quietClient.threads.create();
  await quietClient.runs.create(threadId, 'echo', { input: { messages: [] } });
  await quietClient.runs.wait(threadId, 'echo', { input: { messages: [] } });
  expect(await running(server)).toBe(4);
});

it('starts runs of another user with custom authentication', { timeout: 120_000 }, async () => {
  server = await startAgentServer({ config, project: 'auth' });
  const clientOf = (name: string) => {
    const defaultHeaders = { authorization: `Bearer secret-${name}` };
    const apiUrl = (server as AgentServerUnderTest).url;
    return new Client({ apiUrl, apiKey: null as never, defaultHeaders, callerOptions: { maxRetries: 0 } });
  };
  await flood(server, clientOf('ada'));
  await clientOf('ben').runs.wait(null, 'echo', { input: {} });
  expect(await running(server)).toBe(4);
});
