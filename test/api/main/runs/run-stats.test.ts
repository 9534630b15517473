import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
const noStats = {
  run_count: 0,
  latency_p50: null,
  total_tokens: 0,
  total_cost: null,
  error_rate: null,
  feedback_stats: {},
};

beforeAll(async () => {
  const [root] = runs.trace;
  const call = (at: number, more: object) =>
    runEvent({
      tenantId: runs.ours.workspaceIds[0],
      projectId: runs.projectId,
      traceId: root.runId,
      traceTimeMicros: noonMicros,
      startTimeMicros: noonMicros + at * 1e6,
      values: {
        name: 'model',
        runType: 'llm',
        parentRunId: root.runId,
        endedAtMicros: noonMicros + (at + 2) * 1e6,
        firstTokenTimeMicros: noonMicros + at * 1e6 + 500_000,
        promptTokens: 10,
        completionTokens: at,
        totalTokens: 10 + at,
        tags: json(['fast', 'new']),
        extra: json({ metadata: { model: { name: 'm1' }, teams: ['search', 'ads', 'search'] } }),
        ...more,
      },
    });
  await insertEvents(runs.api.services.clickhouse, [
    call(3, { totalCost: '0.25', usageDetails: json({ prompt_token_details: { cache_read: 4 } }) }),
    call(4, { tags: json(['fast']) }),
  ]);
  const sent = await runs.ask({ url: '/feedback', body: { run_id: root.runId, key: 'quality', score: 0.5 } });
  expect(sent.status).toBe(200);
  await runs.api.settled();
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
});

const ask = (body: object, key?: string) => runs.ask({ url: '/runs/stats', body, ...(key && { key }) });

describe('run statistics', () => {
  it('are read by the stock SDK', async () => {
    const stats = await client.getRunStats({ projectNames: [runs.projectName] });
    expect(stats).toEqual({
      run_count: 5,
      latency_p50: 7,
      latency_p99: expect.closeTo(8.96, 6),
      latency_avg: expect.closeTo((9 + 8 + 7 + 2 + 2) / 5, 6),
      first_token_p50: 0.5,
      first_token_p99: 0.5,
      total_tokens: 27,
      median_tokens: 27,
      tokens_p99: 27,
      prompt_tokens: 20,
      prompt_tokens_p50: 20,
      prompt_tokens_p99: 20,
      completion_tokens: 7,
      completion_tokens_p50: 7,
      completion_tokens_p99: 7,
      total_cost: 0.25,
      cost_p50: 0.25,
      cost_p99: 0.25,
      prompt_cost: null,
      completion_cost: null,
      last_run_start_time: '2026-03-05T12:00:04.000000',
      feedback_stats: { quality: expect.objectContaining({ n: 1, avg: 0.5 }) },
      run_facets: expect.arrayContaining([
        { key: 'name', value: 'model', query: 'eq(name, "model")', n: 2 },
        { key: 'run_type', value: 'chain', query: 'eq(run_type, "chain")', n: 3 },
        { key: 'status', value: 'error', query: 'eq(status, "error")', n: 1 },
      ]),
      error_rate: 0.2,
      streaming_rate: 0.4,
      prompt_token_details: { cache_read: 4 },
      completion_token_details: {},
      prompt_cost_details: {},
      completion_cost_details: {},
    });
    const calls = await client.getRunStats({
      projectIds: [runs.projectId],
      runType: 'llm',
      filter: 'has(tags, "new")',
    });
    expect(calls).toMatchObject({ run_count: 1, total_tokens: 13, median_tokens: 13, latency_p50: 2 });
  });

  const root = () => runs.trace[0].runId;
  it.each<[string, () => object, object]>([
    [
      'an id',
      () => ({ id: [root(), randomUUID()] }),
      { run_count: 1, total_tokens: 27, feedback_stats: { quality: {} } },
    ],
    ['no ids', () => ({ id: [] }), noStats],
    ['a trace', () => ({ trace: root(), is_root: false }), { run_count: 4, total_tokens: 27, feedback_stats: {} }],
    ['no runs', () => ({ filter: 'eq(name, "none")' }), noStats],
    ['a project of another organisation', () => ({ session: [randomUUID()] }), noStats],
    ['a time', () => ({ start_time: '2026-03-05T12:00:04Z' }), { run_count: 1, total_tokens: 14 }],
    ['an end', () => ({ end_time: '2026-03-05T12:00:05.5Z' }), { run_count: 1, total_tokens: 13 }],
  ])('of %s', async (_name, body, expected) => {
    expect((await ask(body())).body).toMatchObject(expected);
  });

  it.each<[string, object, object]>([
    ['run type', { attribute: 'run_type' }, { llm: { run_count: 2 }, chain: { run_count: 3 } }],
    ['tag', { attribute: 'tag' }, { fast: { run_count: 2 }, new: { run_count: 1 } }],
    ['nested metadata', { attribute: 'metadata', path: 'model.name' }, { m1: { run_count: 2 } }],
    [
      'metadata that is a list',
      { attribute: 'metadata', path: 'teams' },
      { search: { run_count: 2 }, ads: { run_count: 2 } },
    ],
    ['name, of which one', { attribute: 'name', max_groups: 1 }, { model: { run_count: 2 } }],
  ])('by %s', async (_name, group_by, expected) => {
    expect((await ask({ group_by, select: ['run_count'] })).body).toEqual(expected);
  });

  it('by name, of some groups', async () => {
    const groups = ['model', "' OR 1=1", '\0'];
    const select = ['total_tokens', 'feedback_stats'];
    const { body } = await ask({ group_by: { attribute: 'name' }, groups, select });
    expect(body).toEqual({ model: { total_tokens: 27, feedback_stats: {} } });
  });

  it('by name, of as many groups as are named', async () => {
    const groups = ['g0', 'g1', 'g2', 'g3', 'g4', 'g5', 'g6'];
    const tags = json(['grouped']);
    const at = { tenantId: runs.ours.workspaceIds[0], projectId: runs.projectId };
    const events = groups.map((name) => runEvent({ ...at, values: { name, tags } }));
    await insertEvents(runs.api.services.clickhouse, events);
    const read = async (more: object, group_by: object = {}) => {
      const body = { filter: 'has(tags, "grouped")', select: ['run_count'], ...more };
      return Object.keys((await ask({ ...body, group_by: { attribute: 'name', ...group_by } })).body);
    };
    expect(await read({ groups })).toEqual(groups);
    expect(await read({ groups }, { max_groups: 6 })).toEqual(groups.slice(0, 6));
    expect(await read({ groups: [] })).toEqual([]);
    expect(await read({})).toHaveLength(5);
  });

  it('by name, of groups with special names', async () => {
    const events = ['__proto__', 'constructor', 'a/b', '\\"'].map((name) =>
      runEvent({
        tenantId: runs.ours.workspaceIds[0],
        projectId: runs.projectId,
        values: { name, tags: json(['odd']) },
      }),
    );
    await insertEvents(runs.api.services.clickhouse, events);
    const { text } = await ask({ filter: 'has(tags, "odd")', group_by: { attribute: 'name' }, select: ['run_count'] });
    for (const name of ['__proto__', 'constructor', 'a/b', '\\"'])
      expect(text).toContain(`${JSON.stringify(name)}:{"run_count":1}`);
  });

  it('cover only the experiments on a dataset', async () => {
    const [datasetId, experimentId] = [randomUUID(), randomUUID()];
    const [tenantId] = runs.ours.workspaceIds;
    await runs.api.database.execute(
      'INSERT INTO projects (id, workspace_id, name, reference_dataset_id) VALUES ($1, $2, $3, $4)',
      [experimentId, tenantId, 'experiment', datasetId],
    );
    await insertEvents(runs.api.services.clickhouse, [runEvent({ tenantId, projectId: experimentId, values: {} })]);
    const read = async (more: object) =>
      (await ask({ reference_dataset_id: datasetId, select: ['run_count', 'group_count'], ...more })).body;
    expect(await read({})).toEqual({ run_count: 1 });
    expect(await read({ session: [runs.projectId, experimentId] })).toEqual({ run_count: 1 });
    expect(await read({ session: [runs.projectId] })).toEqual({ run_count: 0 });
    expect(await read({ reference_dataset_id: randomUUID() })).toEqual({ run_count: 0 });
  });

  it('are selected by name', async () => {
    const select = async (...names: string[]) => Object.keys((await ask({ trace: root(), select: names })).body).sort();
    expect(await select('latency_p99', 'thread_feedback_stats')).toEqual(['latency_p99']);
    expect(await select('all_token_stats')).toContain('cost_p99');
    expect(await select('all_run_stats')).not.toContain('total_tokens');
  });

  it.each<[string, object, number]>([
    ['an invalid filter', { filter: 'eq(' }, 400],
    ['metadata without a path', { group_by: { attribute: 'metadata' } }, 400],
    ['groups without an attribute', { groups: ['a'] }, 400],
    ['an unknown attribute', { group_by: { attribute: 'id' } }, 422],
    ['too many groups', { group_by: { attribute: 'name', max_groups: 101 } }, 422],
    ['an unknown statistic', { select: ['mode'] }, 422],
  ])('refuse %s', async (_name, body, status) => {
    expect((await ask(body)).status).toBe(status);
  });

  it('need the permission to read runs', async () => {
    expect((await ask({}, runs.keyWithoutRunsRead)).status).toBe(403);
    expect((await ask({}, runs.theirs.workspaceKeys[0])).body).toMatchObject(noStats);
  });
});

it('of many experiments of a dataset are restricted to many projects in linear time', async () => {
  const datasetId = randomUUID();
  await runs.api.database.execute(
    `INSERT INTO projects (id, workspace_id, name, reference_dataset_id)
     SELECT gen_random_uuid(), $1, 'experiment ' || n, $2 FROM generate_series(1, 100000) AS n`,
    [runs.ours.workspaceIds[0], datasetId],
  );
  const measure = async (projects: number) => {
    const session = Array.from({ length: projects }, () => randomUUID());
    const before = process.cpuUsage();
    const { status, body } = await ask({ reference_dataset_id: datasetId, session, select: ['run_count'] });
    expect([status, body.run_count]).toEqual([200, 0]);
    return process.cpuUsage(before).user;
  };
  const few = await measure(1);
  expect(await measure(10_000)).toBeLessThan(5 * Math.max(few, 200_000));
});
