import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { ensureSystemAssistants } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { deleteWorkspaceData } from '../../../pipelines/tenants/delete-workspace-data.ts';
import { forSuite } from '../../for-suite.ts';
import { type AgentServerUnderTest, readInBackground, startAgentServer } from './start-agent-server.ts';

/**
 * Agent servers that run while the workspace of their deployment is deleted, with API keys and with custom auth.
 */

const withTimeout = { timeout: 20_000, interval: 100 };

describe.each([
  {
    project: 'basic',
    getAuthHeaders: (server: AgentServerUnderTest) => ({ 'x-api-key': server.owner.adminKey }),
  },
  { project: 'closing', getAuthHeaders: () => ({ authorization: 'Bearer secret-ada' }) },
])('the project $project', ({ project, getAuthHeaders }) => {
  const server = forSuite(() => startAgentServer({ project }));
  let threadId: string;
  const ask = (method: string, path: string, body?: unknown) =>
    fetch(`${server.url}${path}`, {
      method,
      headers: { ...getAuthHeaders(server), ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const rows = async () => {
    const deployment = server.services.agents.deploymentId;
    const found: Record<string, number> = {};
    for (const table of ['assistants', 'threads', 'runs', 'crons', 'webhooks', 'store_items']) {
      const sql = `SELECT count(*) AS rows FROM agents.${table} WHERE deployment_id = $1`;
      const [row] = await server.database.query<{ rows: number }>(sql, [deployment]);
      if (Number(row?.rows) > 0) found[table] = Number(row?.rows);
    }
    const checkpoints = `SELECT FROM agents.checkpoints WHERE thread_id LIKE $1 LIMIT 1`;
    found.checkpoints = (await server.database.query(checkpoints, [`${deployment}:%`])).length;
    for (const [table, column] of [
      ['runs', 'tenant_id'],
      ['stream_events', 'organization_id'],
    ]) {
      const id = table === 'runs' ? server.services.agents.workspaceId : deployment;
      const [row] = await server.shared.stores.clickhouse.query<{ rows: string }>({
        name: 'test',
        sql: `SELECT count() AS rows FROM ${table} WHERE ${column} = '${id}'`,
      });
      found[`clickhouse ${table}`] = Number(row?.rows);
    }
    return found;
  };
  const none = { checkpoints: 0, 'clickhouse runs': 0, 'clickhouse stream_events': 0 };

  beforeAll(async () => {
    ({ thread_id: threadId } = (await (await ask('POST', '/threads', {})).json()) as { thread_id: string });
  }, 120_000);

  it('ends its runs and streams, rejects requests, and adds no rows after the deletion', async () => {
    const input = { steps: 3, pauseMs: 60_000 };
    const run = { assistant_id: 'steps', input, stream_resumable: true };
    const stream = await ask('POST', `/threads/${threadId}/runs/stream`, run);
    expect(stream.status).toBe(200);
    const seen = readInBackground(stream);
    await expect.poll(() => server.executor.running, withTimeout).toBe(1);
    await expect.poll(() => seen.text, withTimeout).toContain('metadata');
    const cron = { assistant_id: 'steps', schedule: '0 0 1 1 *', input };
    expect((await ask('POST', '/runs/crons', cron)).status).toBe(200);

    // Deletes the workspace as another process does, while clients keep writing.
    const { database, services, shared } = server;
    const { workspaceId, deploymentId } = services.agents;
    let stop = false;
    const statuses = new Set<number>();
    const writeLoop = (async () => {
      while (!stop) {
        statuses.add((await ask('POST', '/threads', {})).status);
        statuses.add((await ask('PUT', '/store/items', { namespace: ['ada'], key: randomUUID(), value: {} })).status);
      }
    })();
    await database.execute('UPDATE workspaces SET deleted_at = now() WHERE id = $1', [workspaceId]);
    await deleteWorkspaceData(
      {
        ...server.answering,
        clickhouse: shared.stores.clickhouse,
        ...server.answering.exports,
        ...server.answering.system,
      },
      { workspaceId },
    );
    const rowsLeft = await rows();
    await expect.poll(() => seen.ended, withTimeout).toBe(true);
    expect(seen.text).toMatch(/DEPLOYMENT_DELETED|DEPLOYMENT_FORBIDDEN/);
    await expect.poll(() => server.executor.running, withTimeout).toBe(0);
    stop = true;
    await writeLoop;
    expect([...statuses].filter((status) => ![200, 204, 403].includes(status))).toEqual([]);
    expect(rowsLeft).toEqual(none);

    for (const [method, path, body] of [
      ['POST', '/threads', {}],
      ['GET', `/threads/${threadId}`, undefined],
      ['GET', project === 'closing' ? '/hello/ada' : '/info', undefined],
      ['POST', '/runs/wait', run],
    ] as const) {
      const answer = await ask(method, path, body);
      expect([answer.status, await answer.json()], path).toMatchObject([403, { code: 'DEPLOYMENT_DELETED' }]);
    }
    expect((await fetch(`${server.url}/ok`)).status).toBe(200);
    const graphs = [{ graphId: 'late', name: 'late', description: null }];
    await expect(ensureSystemAssistants(database, deploymentId, graphs)).rejects.toMatchObject({
      code: 'DEPLOYMENT_DELETED',
    });
    expect(await rows()).toEqual(none);
  });
});
