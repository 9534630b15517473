import { randomUUID } from 'node:crypto';
import { parse } from 'csv-parse/sync';
import { beforeAll, describe, expect, it } from 'vitest';
import { readAgentUsage } from '../../../../pipelines/usage/agent-report.ts';
import { addOrganizationDeployment } from '../../../agents/add-deployment.ts';
import { forSuite } from '../../../for-suite.ts';
import { Random } from '../../../histories/random.ts';
import { seed } from '../../../house/seed.ts';
import { addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

/** Granular usage with `kind=langsmith_deployments`. */

const api = forSuite(() => startApi());
const ours = forSuite(() => addOrganization(api.database, 'ours'));
const theirs = forSuite(() => addOrganization(api.database, 'theirs'));
let deploymentId: string;
let projectId: string;

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
  const deploy = ({ id, workspaceIds }: OrganizationUnderTest) =>
    addOrganizationDeployment(api.database, { organizationId: id, workspaceId: workspaceIds[0]! });
  deploymentId = await deploy(ours);
  await add(await deploy(theirs), '2026-03-01T10:00:00Z', { project: 'agent', runs: 1_000, nodes: 1_000 });
  projectId = (await api.ask(ours.adminKey, 'POST', '/sessions', { name: 'agent' })).body.id;
  await add(deploymentId, '2026-03-01T10:10:00Z', { project: 'agent', userId: ours.userId, runs: 1, nodes: 3 });
  await add(deploymentId, '2026-03-01T10:59:59Z', { project: 'agent', runs: 1, nodes: 2 });
  await add(deploymentId, '2026-03-02T00:00:00Z', { project: 'gone', userId: randomUUID(), runs: 2, nodes: 0 });
  await add(deploymentId, '2026-03-02T00:30:00Z', { seconds: 1_800 });
});

const path = '/api/v1/orgs/current/billing/granular-usage';
const range = 'start_time=2026-03-01&end_time=2026-03-03&kind=langsmith_deployments';
const workspaces = () => `workspace_ids=${[ours, theirs].map(({ workspaceIds }) => workspaceIds[0]).join(',')}`;
const read = async (more: string) =>
  (await api.ask(ours.adminKey, 'GET', `${path}?${range}&${workspaces()}&${more}`)).body;

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

  it('is refused if it has too many rows', async () => {
    const request = {
      organizationId: ours.id,
      workspaceIds: ours.workspaceIds.slice(0, 1),
      range: { startMs: Date.UTC(2026, 2, 1), endMs: Date.UTC(2026, 2, 3) },
      groupBy: 'project' as const,
    };
    expect((await readAgentUsage(api.database, request, 3)).rows).toHaveLength(3);
    await expect(readAgentUsage(api.database, request, 2)).rejects.toThrow('more than 2 rows');
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
    const { body } = await api.ask(ours.adminKey, 'GET', `${path}?${later}&${workspaces()}&group_by=api_key`);
    expect(body.usage).toMatchObject([
      { dimensions: { api_key_short_key: 'rl_same' }, agent_runs: 2, nodes_executed: 4 },
    ]);
  });

  it('follows the project when it is renamed', async () => {
    await api.ask(ours.adminKey, 'PATCH', `/sessions/${projectId}`, { name: 'renamed' });
    const { usage } = await read('group_by=project');
    expect(usage[0].dimensions).toEqual({ project_id: projectId, project_name: 'renamed' });
  });

  it('follows the project whose former name it has, unless another project has this name now', async () => {
    const rows = async () => {
      const { usage } = await read('group_by=project');
      return usage[0].dimensions;
    };
    expect(await rows()).toEqual({ project_id: projectId, project_name: 'renamed' });
    const { id } = (await api.ask(ours.adminKey, 'POST', '/sessions', { name: 'agent' })).body;
    expect(await rows()).toEqual({ project_id: id, project_name: 'agent' });
    await api.ask(ours.adminKey, 'DELETE', `/sessions/${id}`);
    expect(await rows()).toEqual({ project_id: projectId, project_name: 'renamed' });
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
    const { status } = await api.ask(ours.adminKey, 'GET', `${path}?${range}&${workspaces()}&kind=none`);
    expect(status).toBe(422);
  });
});

describe('uptime', () => {
  const maxGap = 30;
  const newDeployment = () =>
    addOrganizationDeployment(api.database, { organizationId: ours.id, workspaceId: ours.workspaceIds[0]! });
  const readSecondsByHour = async (id: string) => {
    const sql = `SELECT extract(epoch FROM hour)::int AS hour, sum(uptime_seconds)::int AS seconds
      FROM agents.usage_hourly WHERE deployment_id = $1 AND uptime_seconds > 0 GROUP BY hour ORDER BY hour`;
    const rows = await api.database.query<{ hour: number; seconds: number }>(sql, [id]);
    return rows.map(({ hour, seconds }) => [hour, seconds]);
  };
  /** `since` and `at` are Unix seconds; so is the result. */
  const count = async (id: string, since: number | undefined, at: number) => {
    const sql = `SELECT extract(epoch FROM agents.count_uptime($1, to_timestamp($2), $3 * interval '1 second', to_timestamp($4)))::int AS until`;
    const [row] = await api.database.query<{ until: number }>(sql, [id, since ?? null, maxGap, at]);
    return row!.until;
  };

  const hour = Date.UTC(2026, 3, 1, 10) / 1_000;
  it.each<[string, [process: string, at: number][], [hour: number, seconds: number][]]>([
    [
      'the time between heartbeats of a process',
      [
        ['a', 100],
        ['a', 110],
        ['a', 119],
      ],
      [[hour, 19]],
    ],
    [
      'the time of several processes once',
      [
        ['a', 0],
        ['b', 4],
        ['b', 9],
        ['a', 10],
        ['b', 14],
      ],
      [[hour, 14]],
    ],
    [
      'no gap between two processes',
      [
        ['a', 0],
        ['a', 10],
        ['b', 15],
        ['b', 25],
      ],
      [[hour, 20]],
    ],
    [
      'no gap of a process that was suspended',
      [
        ['a', 0],
        ['a', 10],
        ['a', 41],
        ['a', 51],
      ],
      [[hour, 20]],
    ],
    [
      'each hour by itself',
      [
        ['a', 3_590],
        ['a', 3_610],
      ],
      [
        [hour, 10],
        [hour + 3_600, 10],
      ],
    ],
    ['nothing for one heartbeat', [['a', 5]], []],
    [
      'whole seconds',
      [
        ['a', 0.2],
        ['a', 0.9],
        ['a', 1.4],
        ['a', 7.999],
      ],
      [[hour, 7]],
    ],
  ])('counts %s', async (_, calls, expected) => {
    const id = await newDeployment();
    const since = new Map<string, number>();
    for (const [process, at] of calls) since.set(process, await count(id, since.get(process), hour + at));
    expect(await readSecondsByHour(id)).toEqual(expected);
  });

  it('counts each second once in random histories of processes', async () => {
    const random = new Random(seed);
    const id = await newDeployment();
    const since = new Map<string, number>();
    const seconds = new Set<number>();
    let at = hour;
    for (let done = 0; done < 300; done += 1) {
      at += random.int(8);
      const process = `process ${random.int(4)}`;
      // A process that ends loses what it has not counted; the next one begins anew.
      if (random.int(5) === 0) since.delete(process);
      const before = since.get(process);
      if (before !== undefined && at - before <= maxGap)
        for (let each = before; each < at; each += 1) seconds.add(each);
      since.set(process, await count(id, before, at));
      expect(since.get(process)).toBe(at);
    }
    const hours = [...new Set([...seconds].map((each) => each - (each % 3_600)))].sort((a, b) => a - b);
    const expected = hours.map((begin) => [
      begin,
      [...seconds].filter((each) => each - (each % 3_600) === begin).length,
    ]);
    expect(await readSecondsByHour(id), `seed ${seed}`).toEqual(expected);
  });

  it('counts the time once, when several processes call at once', async () => {
    const id = await newDeployment();
    await Promise.all(Array.from({ length: 8 }, () => count(id, hour, hour + 20)));
    expect(await readSecondsByHour(id)).toEqual([[hour, 20]]);
  });

  it('says what a process counts again, if another one was counting', async () => {
    const id = await newDeployment();
    await count(id, hour, hour + 1);
    await api.database.transaction(async (tx) => {
      await tx.query('SELECT FROM agents.uptime WHERE deployment_id = $1 FOR UPDATE', [id]);
      expect(await count(id, hour + 1, hour + 9)).toBe(hour + 1);
    });
    expect(await count(id, hour + 1, hour + 10)).toBe(hour + 10);
    expect(await readSecondsByHour(id)).toEqual([[hour, 10]]);
  });
});

it('is grouped by project in about the time that it is grouped by workspace', async () => {
  const many = await addOrganization(api.database, 'many');
  const [workspaceId] = many.workspaceIds;
  await api.database.execute(
    `INSERT INTO projects (id, workspace_id, name) SELECT gen_random_uuid(), $1, 'p' || n FROM generate_series(1, 2000) AS n`,
    [workspaceId],
  );
  await api.database.execute(
    `INSERT INTO agents.usage_hourly (workspace_id, hour, deployment_id, project_name, user_id, key_id, shard, agent_runs)
     SELECT $1, '2026-01-01'::timestamptz + n % 700 * interval '1 hour', $1, 'p' || n % 5, gen_random_uuid(), $1, 0, 1
     FROM generate_series(1, 20000) AS n`,
    [workspaceId],
  );
  const measure = async (group: string) => {
    const started = performance.now();
    const query = `start_time=2026-01-01&end_time=2026-02-01&kind=langsmith_deployments&workspace_ids=${workspaceId}`;
    const { status, body } = await api.ask(many.adminKey, 'GET', `${path}?${query}&group_by=${group}`);
    const runs = body.usage.reduce((sum: number, row: { agent_runs: number }) => sum + row.agent_runs, 0);
    expect([status, runs]).toEqual([200, 20_000]);
    return performance.now() - started;
  };
  const byWorkspace = await measure('workspace');
  expect(await measure('project')).toBeLessThan(10 * Math.max(byWorkspace, 100));
});
