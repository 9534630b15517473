/** One effect of each setting of the agent server that no other suite varies. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { addOrganizationDeployment } from '../../agents/add-deployment.ts';
import { until } from '../../infra/until.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

const account = `graphs_${randomUUID().replaceAll('-', '')}`;
let shared: AgentServerUnderTest;
let agents: AgentServerUnderTest;
beforeAll(async () => {
  shared = await startAgentServer({ project: 'spy' });
  const { database, owner } = shared;
  const tables = ['checkpoints', 'checkpoint_blobs', 'checkpoint_writes', 'store_items', 'store_vectors'];
  await database.execute(
    `CREATE ROLE ${account} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA agents TO ${account};
     GRANT SELECT, INSERT, UPDATE, DELETE ON ${tables.map((table) => `agents.${table}`)} TO ${account}`,
  );
  const agentsDeployment = await addOrganizationDeployment(database, {
    organizationId: owner.id,
    workspaceId: owner.workspaceIds[0],
  });
  await database.execute('INSERT INTO agents.graph_accounts (account, deployment_id) VALUES ($1, $2)', [
    account,
    agentsDeployment,
  ]);
  const url = new URL(shared.shared.stores.databaseUrl);
  url.username = account;
  url.password = 'x';
  agents = await startAgentServer({
    project: 'spy',
    shareStoresWith: shared,
    config: {
      agentsDeployment,
      agentsDatabaseUrl: url.href,
      agentsWorkerHeapMegabytes: 100,
      agentsRunTimeoutMs: 2_000,
      agentsStreamHours: 48,
    },
  });
}, 120_000);
afterAll(async () => {
  await agents?.close();
  await shared?.database.execute(`DROP OWNED BY ${account}; DROP ROLE ${account}`);
  await shared?.close();
});

/** Runs the body of a function as graph code. */
const run = (code: string, server = agents) => server.client.runs.wait(null, 'spy', { input: { code } });

it('RUNLAKE_AGENTS_WORKER_HEAP_MB limits the heap of graph code', async () => {
  const code = `return Math.round(require('node:v8').getHeapStatistics().heap_size_limit / 2 ** 20)`;
  const { found } = (await run(code)) as { found: number };
  const { found: ofNode } = (await run(code, shared)) as { found: number };
  // Node adds the size of the young generation to the limit.
  expect(found).toBeGreaterThanOrEqual(100);
  expect(found).toBeLessThan(250);
  expect(ofNode).toBeGreaterThan(250);
});

it('RUNLAKE_AGENTS_RUN_TIMEOUT_MS ends a run that takes longer', async () => {
  const { thread_id } = await agents.client.threads.create();
  const { run_id } = await agents.client.runs.create(thread_id, 'spy', {
    input: { code: 'await new Promise((resolve) => setTimeout(resolve, 60_000))' },
  });
  await until('the run to end', async () => {
    const { status } = await agents.client.runs.get(thread_id, run_id);
    return (status as string) === 'timeout';
  });
});

it('RUNLAKE_AGENTS_DATABASE_URL is the account that stores the checkpoints of graph code', async () => {
  const { database } = shared;
  const connections = () => database.query('SELECT FROM pg_stat_activity WHERE usename = $1', [account]);
  const { thread_id } = await agents.client.threads.create();
  await agents.client.runs.wait(thread_id, 'spy', { input: { code: 'return 1' } });
  expect(await connections()).not.toEqual([]);
  // Without the permission, the state of a run cannot be stored.
  await database.execute(`REVOKE INSERT ON agents.checkpoints FROM ${account}`);
  await expect(agents.client.runs.wait(thread_id, 'spy', { input: { code: 'return 2' } })).rejects.toThrow();
  await database.execute(`GRANT INSERT ON agents.checkpoints TO ${account}`);
});

it('RUNLAKE_AGENTS_STREAM_HOURS is how long events of resumable streams are kept', async () => {
  const { thread_id } = await agents.client.threads.create();
  const { run_id } = await agents.client.runs.create(thread_id, 'spy', {
    input: { code: 'return 1' },
    streamResumable: true,
  });
  await agents.client.runs.join(thread_id, run_id);
  const { clickhouse } = shared.shared.stores;
  const hours = () =>
    clickhouse.query({
      name: 'test',
      sql: `SELECT DISTINCT toInt32(dateDiff('hour', created_at, expires_at)) AS hours FROM stream_events
            WHERE run_id = '${run_id}' AND kept`,
    });
  await until('the events to be stored', async () => (await hours()).length > 0);
  expect(await hours()).toEqual([{ hours: 48 }]);
});
