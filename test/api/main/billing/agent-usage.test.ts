import { randomUUID } from 'node:crypto';
import { parse } from 'csv-parse/sync';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addOrganizationDeployment } from '../../../agents/add-deployment.ts';
import { asking } from '../../ask.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

/** Granular usage with `kind=langsmith_deployments`. */

let api: ApiUnderTest;
let ours: OrganizationUnderTest;
let theirs: OrganizationUnderTest;
let deploymentId: string;
let projectId: string;
const send = asking(() => api);

interface Usage {
  readonly project?: string;
  readonly userId?: string | undefined;
  readonly runs?: number;
  readonly nodes?: number;
  readonly seconds?: number;
}

async function add(deployment: string, at: string, { project, userId, runs = 0, nodes = 0, seconds = 0 }: Usage) {
  const values = [deployment, at, project ?? null, userId ?? null, null, runs, nodes, seconds];
  await api.database.query('SELECT agents.add_usage($1, $2, $3, $4, $5, $6, $7, $8)', values);
}

beforeAll(async () => {
  api = await startApi();
  ours = await addOrganization(api.database, 'ours');
  theirs = await addOrganization(api.database, 'theirs');
  const deploy = ({ id, workspaceIds }: OrganizationUnderTest) =>
    addOrganizationDeployment(api.database, { organizationId: id, workspaceId: workspaceIds[0]! });
  deploymentId = await deploy(ours);
  await add(await deploy(theirs), '2026-03-01T10:00:00Z', { project: 'agent', runs: 1_000, nodes: 1_000 });
  projectId = (await send(ours.adminKey, 'POST', '/sessions', { name: 'agent' })).body.id;
  await add(deploymentId, '2026-03-01T10:10:00Z', { project: 'agent', userId: ours.userId, runs: 1, nodes: 3 });
  await add(deploymentId, '2026-03-01T10:59:59Z', { project: 'agent', runs: 1, nodes: 2 });
  await add(deploymentId, '2026-03-02T00:00:00Z', { project: 'gone', userId: randomUUID(), runs: 2, nodes: 0 });
  await add(deploymentId, '2026-03-02T00:30:00Z', { seconds: 1_800 });
});
afterAll(() => api.close());

const path = '/api/v1/orgs/current/billing/granular-usage';
const range = 'start_time=2026-03-01&end_time=2026-03-03&kind=langsmith_deployments';
const workspaces = () => `workspace_ids=${[ours, theirs].map(({ workspaceIds }) => workspaceIds[0]).join(',')}`;
const read = async (more: string) =>
  (await send(ours.adminKey, 'GET', `${path}?${range}&${workspaces()}&${more}`)).body;

describe('usage of deployments', () => {
  it('is summed by bucket and grouping, for workspaces that the key can read', async () => {
    const [first, second] = [{ time_bucket: '2026-03-01T00:00:00Z' }, { time_bucket: '2026-03-02T00:00:00Z' }];
    const figures = (nodes_executed: number, agent_runs: number, agent_uptime_seconds = 0) => ({
      ...{ nodes_executed, agent_runs, agent_uptime_seconds },
    });
    const ofWorkspace = { dimensions: { workspace_id: ours.workspaceIds[0], workspace_name: expect.any(String) } };
    expect(await read('group_by=workspace')).toEqual({
      stride: { days: 1, hours: 0 },
      usage: [
        { ...first, ...ofWorkspace, ...figures(5, 2) },
        { ...second, ...ofWorkspace, ...figures(0, 2, 1_800) },
      ],
    });
    const project = (project_id: string | null, project_name: string) => ({ dimensions: { project_id, project_name } });
    expect((await read('group_by=project')).usage).toEqual([
      { ...first, ...project(projectId, 'agent'), ...figures(5, 2) },
      { ...second, ...project(null, 'gone'), ...figures(0, 2) },
      { ...second, ...project(null, 'test'), ...figures(0, 0, 1_800) },
    ]);
    const byUser = (await read('group_by=user')).usage;
    expect(byUser).toContainEqual({
      ...first,
      dimensions: { user_id: ours.userId, user_email: expect.stringContaining('@') },
      ...figures(3, 1),
    });
    expect(byUser.reduce((sum: number, row: { agent_runs: number }) => sum + row.agent_runs, 0)).toBe(4);
    expect((await read('group_by=api_key')).usage[0]).toMatchObject({ dimensions: { api_key_short_key: null } });
  });

  it('adds up keys with the same short form, as usage of traces does', async () => {
    const keys = [randomUUID(), randomUUID()];
    const id = await addOrganizationDeployment(api.database, {
      organizationId: ours.id,
      workspaceId: ours.workspaceIds[0]!,
    });
    for (const [index, keyId] of keys.entries()) {
      await api.database.execute(
        `INSERT INTO api_keys (id, organization_id, user_id, hash, short_key, description, permissions)
         SELECT $1, organization_id, user_id, $2, 'rl_same', description, permissions
         FROM api_keys WHERE organization_id = $3 LIMIT 1`,
        [keyId, Buffer.alloc(32, index + 1), ours.id],
      );
      const values = [id, '2026-03-05T10:00:00Z', 'agent', null, keyId, 1, 2, 0];
      await api.database.query('SELECT agents.add_usage($1, $2, $3, $4, $5, $6, $7, $8)', values);
    }
    const later = range.replace(
      'start_time=2026-03-01&end_time=2026-03-03',
      'start_time=2026-03-05&end_time=2026-03-06T12:00:00',
    );
    const { body } = await send(ours.adminKey, 'GET', `${path}?${later}&${workspaces()}&group_by=api_key`);
    expect(body.usage).toMatchObject([
      { dimensions: { api_key_short_key: 'rl_same' }, agent_runs: 2, nodes_executed: 4 },
    ]);
  });

  it('follows the project when it is renamed', async () => {
    await send(ours.adminKey, 'PATCH', `/sessions/${projectId}`, { name: 'renamed' });
    const { usage } = await read('group_by=project');
    expect(usage[0].dimensions).toEqual({ project_id: projectId, project_name: 'renamed' });
  });

  it('is exported as CSV with columns of its own', async () => {
    const url = `${path}/export?${range}&${workspaces()}`;
    const { body } = await api.server.inject({ url, headers: { 'x-api-key': ours.adminKey } });
    expect(parse(body, { columns: true })).toMatchObject([
      { 'Nodes Executed': '5', 'Agent Runs': '2', 'Agent Uptime (seconds)': '0' },
      { 'Nodes Executed': '0', 'Agent Runs': '2', 'Agent Uptime (seconds)': '1800' },
    ]);
    expect(body.split('\r\n')[0]).not.toContain('Traces');
  });

  it('refuses another kind', async () => {
    const { status } = await send(ours.adminKey, 'GET', `${path}?${range}&${workspaces()}&kind=none`);
    expect(status).toBe(422);
  });
});

describe('uptime', () => {
  const readSeconds = async (id: string) => {
    const sql = `SELECT to_char(hour, 'YYYY-MM-DD HH24') AS hour, sum(uptime_seconds)::int AS seconds
      FROM agents.usage_hourly WHERE deployment_id = $1 AND uptime_seconds > 0 GROUP BY hour ORDER BY hour`;
    return (await api.database.query<{ seconds: number }>(sql, [id])).map(({ seconds }) => seconds);
  };
  const countAfter = async (id: string, countedUntil: string) => {
    await api.database.execute(
      `INSERT INTO agents.uptime VALUES ($1, date_trunc('second', now()) - $2::interval)
       ON CONFLICT (deployment_id) DO UPDATE SET counted_until = excluded.counted_until`,
      [id, countedUntil],
    );
    await api.database.query("SELECT agents.count_uptime($1, interval '30 seconds')", [id]);
  };
  const newDeployment = () =>
    addOrganizationDeployment(api.database, { organizationId: ours.id, workspaceId: ours.workspaceIds[0]! });
  const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0);

  it('counts the time since the last heartbeat, but no gap', async () => {
    const id = await newDeployment();
    await countAfter(id, '10 seconds');
    const counted = sum(await readSeconds(id));
    expect([10, 11]).toContain(counted);
    await countAfter(id, '1 hour');
    expect(sum(await readSeconds(id))).toBe(counted);
  });

  it('counts the time once, when several processes call at once', async () => {
    const id = await newDeployment();
    await countAfter(id, '0 seconds');
    await api.database.execute("UPDATE agents.uptime SET counted_until = counted_until - interval '20 s'", []);
    const calls = Array.from({ length: 8 }, () =>
      api.database.query("SELECT agents.count_uptime($1, interval '30 seconds')", [id]),
    );
    await Promise.all(calls);
    expect([20, 21, 22]).toContain(sum(await readSeconds(id)));
  });
});
