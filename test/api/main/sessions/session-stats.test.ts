import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { Client as NewClient } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import { readTopMetadata } from '../../../../pipelines/projects/project-stats.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { openClient } from '../../open-client.ts';
import { addKey } from '../../start-api.ts';
import { startRunsApi } from '../runs/runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
let newClient: NewClient;
/** Projects `fast` with one trace, `slow` with two, of which one failed, and `empty`. */
const ids = { fast: randomUUID(), slow: randomUUID(), empty: randomUUID() };
const noRuns = { run_count: 0, latency_p50: null, error_rate: null, last_run_start_time: null, total_tokens: 0 };

function addTrace(project: keyof typeof ids, minute: number, seconds: number, more: object) {
  const startTimeMicros = noonMicros + minute * 60_000_000;
  const at = {
    tenantId: runs.ours.workspaceIds[0],
    projectId: ids[project],
    startTimeMicros,
    traceTimeMicros: startTimeMicros,
  };
  const endedAtMicros = startTimeMicros + seconds * 1e6;
  const root = runEvent({ ...at, values: { name: 'root', runType: 'chain', endedAtMicros, ...more } });
  const values = {
    name: 'call',
    runType: 'llm' as const,
    parentRunId: root.runId,
    totalTokens: 10,
    totalCost: '0.0000001',
  };
  const call = runEvent({
    ...at,
    traceId: root.runId,
    startTimeMicros: startTimeMicros + 1,
    values: { ...values, extra: json({ metadata: { model: 'm' } }) },
  });
  return [root, call];
}

beforeAll(async () => {
  const tenantId = runs.ours.workspaceIds[0];
  for (const [name, id] of Object.entries(ids)) {
    await runs.api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
      id,
      tenantId,
      name,
    ]);
  }
  const metadata = (user: string) => ({ extra: json({ metadata: { user, nested: { a: [1, 'x'] } } }) });
  const events = [
    ...addTrace('slow', 1, 10, { ...metadata('u1'), tags: json(['old']) }),
    ...addTrace('slow', 2, 20, { ...metadata('u1'), error: Buffer.from('"boom"') }),
    ...addTrace('fast', 3, 1, metadata('u2')),
  ];
  await insertEvents(runs.api.services.clickhouse, events);
  for (const [run, score] of [
    [events[0], 1],
    [events[4], 0.5],
  ] as const) {
    const sent = await runs.ask({ url: '/feedback', body: { run_id: run?.runId, key: 'good', score } });
    expect(sent.status).toBe(200);
  }
  await runs.api.settled();
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
  newClient = await openClient(runs.api, runs.ours.workspaceKeys[0], {}, NewClient);
});

/** Adds a key that can read projects, and not runs. */
function addProjectReader(): Promise<string> {
  const { id: organizationId, userId, workspaceIds } = runs.ours;
  const permissions = ['projects:read'];
  return addKey({ database: runs.api.database, organizationId, userId, workspaceIds: [workspaceIds[0]], permissions });
}

const list = async (query: string, key?: string) => {
  const { body, status } = await runs.ask({ url: `/sessions?${query}`, ...(key && { key }) });
  return { status, body: body as unknown as readonly Record<string, unknown>[] };
};
const names = async (query: string) => {
  const { body } = await list(
    `${query}&${Object.values(ids)
      .map((id) => `id=${id}`)
      .join('&')}`,
  );
  return body.map(({ name }) => name);
};

it('experiments are numbered by their creation', async () => {
  const datasetIds: string[] = [];
  for (const name of ['numbered', 'numbered too']) datasetIds.push((await client.createDataset(name)).id);
  const [datasetId = '', otherId = ''] = datasetIds;
  const first = await client.createProject({ projectName: 'first', referenceDatasetId: datasetId });
  const second = await client.createProject({ projectName: 'second', referenceDatasetId: datasetId });
  const other = await client.createProject({ projectName: 'other', referenceDatasetId: otherId });
  const numbers: unknown[] = [];
  for await (const project of client.listProjects({ projectIds: [first.id, second.id, other.id, ids.fast] }))
    numbers.push([project.name, (project as { test_run_number?: number | null }).test_run_number]);
  expect(numbers).toEqual(
    expect.arrayContaining([
      ['first', 1],
      ['second', 2],
      ['other', 1],
      ['fast', null],
    ]),
  );
  for (const url of [`/sessions/${second.id}`, `/v2/sessions/${second.id}`])
    expect((await runs.ask({ url })).body).toMatchObject({ test_run_number: 2, last_run_start_time_live: null });
});

describe('statistics of projects', () => {
  it('are read by the stock SDK', async () => {
    const slow = await client.readProject({ projectName: 'slow', includeStats: true });
    expect(slow).toMatchObject({
      id: ids.slow,
      run_count: 2,
      latency_p50: 15,
      latency_p99: 19.9,
      total_tokens: 20,
      total_cost: '0.0000002',
      prompt_cost: null,
      error_rate: 0.5,
      streaming_rate: 0,
      last_run_start_time: '2026-03-05T12:02:00.000000',
      last_run_start_time_live: '2026-03-05T12:02:00.000000',
      test_run_number: null,
      feedback_stats: { good: { n: 1, avg: 1 } },
    });
    const found: Record<string, unknown>[] = [];
    for await (const project of client.listProjects({ projectIds: Object.values(ids), includeStats: true }))
      found.push({ ...project });
    const byName = new Map(found.map((project) => [project.name, project]));
    expect(byName.get('fast')).toMatchObject({ run_count: 1, latency_p50: 1, total_tokens: 10, run_facets: null });
    expect(byName.get('empty')).toMatchObject({ ...noRuns, feedback_stats: {} });
  });

  it('are null unless they are requested or selected', async () => {
    const { body } = await list(`id=${ids.slow}`);
    expect(body[0]).toMatchObject({ run_count: null, latency_p50: null, feedback_stats: null });
    const selected = await list(`id=${ids.slow}&include_stats=true&stats_select=run_count`);
    expect(selected.body[0]).toMatchObject({ run_count: 2, latency_p50: null, total_tokens: null });
    const facets = await list(`id=${ids.slow}&include_stats=true&facets=true`);
    expect(facets.body[0]?.run_facets).toContainEqual({ key: 'name', value: 'root', query: 'eq(name, "root")', n: 2 });
  });

  it('are null except the number of root runs of an experiment that is read by its name or id', async () => {
    const { id } = await client.createProject({ projectName: 'tried', referenceDatasetId: randomUUID() });
    const [root, call] = addTrace('fast', 4, 1, {});
    await insertEvents(
      runs.api.services.clickhouse,
      [root!, call!].map((event) => ({ ...event, projectId: id })),
    );
    const none = { run_count: null, latency_p50: null, feedback_stats: null };
    const count = { ...none, run_count: 1 };
    const reads = (key?: string) =>
      Promise.all(
        [`/sessions/${id}`, `/v2/sessions/${id}`, '/sessions?name=tried', '/sessions?name_contains=tried'].map(
          async (url) => [(await runs.ask({ url, ...(key && { key }) })).body].flat()[0],
        ),
      );
    expect(await reads()).toMatchObject([count, count, count, none]);
    expect(await reads(await addProjectReader())).toMatchObject([none, none, none, none]);
  });

  it.each<[string, string, object]>([
    ['a time', 'stats_start_time=2026-03-05T12:02:00Z', { run_count: 1, latency_p50: 20, total_tokens: 10 }],
    ['a filter', 'stats_filter=has(tags, "old")', { run_count: 1, latency_p50: 10, total_tokens: 10 }],
    ['a filter that no run matches', 'stats_filter=eq(name, "none")', noRuns],
  ])('are limited by %s', async (_name, query, expected) => {
    const { body } = await list(`id=${ids.slow}&include_stats=true&${query}`);
    expect(body).toMatchObject([expected]);
  });

  it('of one project have a start time', async () => {
    const url = `/sessions/${ids.slow}?include_stats=true&stats_start_time=2026-03-05T12:02:00Z`;
    expect((await runs.ask({ url })).body).toMatchObject({ run_count: 1, error_rate: 1 });
    expect((await runs.ask({ url: `/sessions/${ids.slow}` })).body).toMatchObject({ run_count: null });
  });

  it.each<[string, string, string[]]>([
    ['sort_by=latency_p50', 'the median latency', ['slow', 'fast', 'empty']],
    ['sort_by=latency_p99&sort_by_desc=false', 'the 99th percentile, ascending', ['fast', 'slow', 'empty']],
    ['sort_by=runs_count&sort_by_desc=false', 'the number of runs, ascending', ['empty', 'fast', 'slow']],
    ['sort_by=error_rate', 'the error rate', ['slow', 'fast', 'empty']],
    ['sort_by=last_run_start_time', 'the newest run', ['fast', 'slow', 'empty']],
    ['sort_by=feedback&sort_by_feedback_key=good', 'feedback', ['slow', 'fast', 'empty']],
    ['sort_by=runs_count&offset=1&limit=1', 'the number of runs, a page', ['fast']],
    ['sort_by=latency_p50&stats_filter=has(tags, "old")', 'runs that match', ['slow']],
    ['sort_by=name&filter=neq(name, "fast")', 'name, of projects that match', ['slow', 'empty']],
    ['sort_by=runs_count&filter=neq(name, "slow")', 'the number of runs, of projects that match', ['fast', 'empty']],
    ['sort_by=runs_count&filter=eq(name, "root")', 'the number of runs, of no project', []],
  ])('order by %s: %s', async (query, _name, expected) => {
    expect((await names(query)).slice(0, query.includes('stats_filter') ? 1 : 3)).toEqual(expected);
  });

  it.each<[string, number]>([
    ['include_stats=true&stats_filter=eq(', 400],
    ['filter=eq(', 400],
    ['filter=has(tags, "old")', 400],
    ['sort_by=feedback', 400],
    ['sort_by=size', 422],
    ['include_stats=true&stats_select=mode', 422],
    ['stats_start_time=noon', 422],
  ])('refuse %s', async (query, status) => {
    expect((await list(query)).status).toBe(status);
  });

  it('need the permission to read runs', async () => {
    const key = await addProjectReader();
    expect((await list('limit=1', key)).status).toBe(200);
    expect((await list('filter=eq(name, "a")', key)).status).toBe(200);
    for (const query of ['include_stats=true', 'sort_by=runs_count']) expect((await list(query, key)).status).toBe(403);
  });
});

describe('projects by version 2', () => {
  type Query = NonNullable<Parameters<NewClient['sessions']['listV2']>[0]>;
  const listV2 = async (query: Query) => {
    const found = [];
    for await (const project of newClient.sessions.listV2({ id: Object.values(ids), ...query })) found.push(project);
    return found;
  };
  const ask = (query: string, key?: string) => runs.ask({ url: `/api/v2/sessions?${query}`, ...(key && { key }) });

  it('are listed by the stock client, page by page, in each order', async () => {
    const namesOf = async (query: Query) => (await listV2({ page_size: 1, ...query })).map(({ name }) => name);
    expect(await namesOf({ sort_by: 'NAME', sort_order: 'asc' })).toEqual(['empty', 'fast', 'slow']);
    expect(await namesOf({ sort_by: 'LATENCY_P50' })).toEqual(['slow', 'fast', 'empty']);
    expect(await namesOf({ sort_by: 'FEEDBACK', sort_by_feedback_key: 'good' })).toEqual(['slow', 'fast', 'empty']);
    expect(await namesOf({ filter: 'eq(name, "slow")' })).toEqual(['slow']);
    expect(await namesOf({ name_contains: 'AST' })).toEqual(['fast']);
    const { body } = await ask(`id=${ids.slow}&id=${ids.fast}&page_size=2`);
    expect(body).toMatchObject({ has_more: false, next_cursor: null });
  });

  it('have statistics on request, costs as numbers and types and tiers in upper case', async () => {
    const [slow] = await listV2({ id: [ids.slow], include_stats: true });
    expect(slow).toMatchObject({
      ...{ id: ids.slow, type: 'PROJECT', trace_tier: null, run_count: 2, latency_p50: 15, total_cost: 0.0000002 },
      ...{ prompt_cost: null, run_facets: null, feedback_stats: { good: { n: 1, avg: 1 } }, longlived_ttl_days: null },
    });
    const [plain] = await listV2({ id: [ids.slow] });
    expect(plain).toMatchObject({ run_count: null, total_cost: null });
    const [filtered] = await listV2({ id: [ids.slow], include_stats: true, stats_filter: 'has(tags, "old")' });
    expect(filtered).toMatchObject({ run_count: 1 });
    const [withFacets] = await listV2({ id: [ids.slow], include_stats: true, include_facets: true });
    expect(withFacets?.run_facets).toContainEqual(expect.objectContaining({ key: 'name', value: 'root' }));
  });

  it('are projects or experiments', async () => {
    const reference_dataset_id = randomUUID();
    const tier = { trace_tier: 'shortlived', reference_dataset_id };
    const made = await runs.ask({ url: '/sessions', body: { name: 'an experiment', ...tier } });
    const id = [String(made.body.id), ids.slow];
    const types = async (query: Query) =>
      (await listV2({ id, sort_by: 'NAME', sort_order: 'asc', ...query })).map((each) => each.type);
    expect(await types({})).toEqual(['EXPERIMENT', 'PROJECT']);
    expect(await types({ type: ['PROJECT'] })).toEqual(['PROJECT']);
    expect(await types({ type: ['EXPERIMENT', 'AGENT'] })).toEqual(['EXPERIMENT']);
    expect(await types({ type: ['AGENT'] })).toEqual([]);
    expect(await types({ reference_dataset_id: [reference_dataset_id] })).toEqual(['EXPERIMENT']);
    expect((await listV2({ id: id.slice(0, 1) }))[0]).toMatchObject({ trace_tier: 'SHORT_LIVED' });
  });

  it.each<[string, number]>([
    ['sort_by=name', 422],
    ['sort_by=FEEDBACK', 400],
    ['page_size=101', 422],
    ['page_size=0', 422],
    ['cursor=x', 400],
    ['type=TRACE', 422],
    ['filter=eq(', 400],
    ['metadata=x', 422],
  ])('refuse %s with a problem', async (query, status) => {
    const refused = await ask(query);
    expect([refused.status, refused.body.status, refused.type]).toEqual([
      status,
      status,
      expect.stringContaining('application/problem+json'),
    ]);
  });

  it('need the permission to read runs for statistics, and stay in the workspace', async () => {
    const key = await addProjectReader();
    expect((await ask('page_size=1', key)).status).toBe(200);
    for (const query of ['include_stats=true', 'sort_by=LATENCY_P99']) expect((await ask(query, key)).status).toBe(403);
    expect((await ask('page_size=1', runs.keyWithoutRunsRead)).status).toBe(403);
    expect((await ask(`id=${ids.slow}`, runs.theirs.workspaceKeys[0])).body.items).toEqual([]);
  });
});

describe('metadata of a project', () => {
  const read = async (query = '', id: string = ids.slow) =>
    await runs.ask({ url: `/sessions/${id}/metadata?${query}` });
  it('has the most frequent values of each key', async () => {
    expect((await read()).body).toEqual({ user: ['u1'], 'nested.a': ['1', 'x'], model: ['m'] });
    expect((await read('root_runs_only=true&metadata_keys=user&metadata_keys=model')).body).toEqual({ user: ['u1'] });
    expect((await read('k=1&metadata_keys=nested.a')).body).toEqual({ 'nested.a': ['1'] });
    expect((await read('start_time=2026-03-05T12:03:00Z')).body).toEqual({});
    expect((await read('', ids.empty)).body).toEqual({});
  });

  it('is refused if several values are larger than a response may be', async () => {
    const readWithin = (maxBytes: number, keys?: string[]) =>
      readTopMetadata(runs.api.services.clickhouse, {
        tenantId: runs.ours.workspaceIds[0],
        projectId: ids.slow,
        keys,
        rootsOnly: false,
        maxValues: 10,
        maxBytes,
      });
    expect(Object.fromEntries(await readWithin(22))).toEqual({ user: ['u1'], 'nested.a': ['1', 'x'], model: ['m'] });
    await expect(readWithin(21)).rejects.toMatchObject({ code: 'ANSWER_TOO_LARGE' });
    expect(Object.fromEntries(await readWithin(1, ['user']))).toEqual({ user: ['u1'] });
  });

  it('is refused for an unknown project and for bad parameters', async () => {
    expect((await read('', randomUUID())).status).toBe(404);
    expect((await read('k=0')).status).toBe(422);
    expect((await runs.ask({ url: `/sessions/${ids.slow}/metadata`, key: runs.theirs.workspaceKeys[0] })).status).toBe(
      404,
    );
  });
});

describe('feedback on projects themselves', () => {
  beforeAll(async () => {
    for (const [name, score] of [
      ['slow', 0.25],
      ['empty', 0.75],
    ] as const) {
      const sent = await runs.ask({ url: '/feedback', body: { session_id: ids[name], key: 'summary', score } });
      expect(sent.status).toBe(200);
    }
    await runs.api.settled();
  });

  it('has statistics of its own', async () => {
    const slow = await client.readProject({ projectName: 'slow', includeStats: true });
    expect(slow).toMatchObject({
      feedback_stats: { good: { n: 1 } },
      session_feedback_stats: { summary: { n: 1, avg: 0.25 } },
    });
    expect(slow.feedback_stats).not.toHaveProperty('summary');
    const read = await runs.ask({ url: `/sessions/${ids.empty}?include_stats=true` });
    expect(read.body).toMatchObject({ session_feedback_stats: { summary: { n: 1, avg: 0.75 } } });
    const { body } = await list(`id=${ids.slow}&include_stats=true&stats_select=run_count`);
    expect(body).toMatchObject([{ run_count: 2, session_feedback_stats: null }]);
    const selected = await list(`id=${ids.slow}&include_stats=true&stats_select=session_feedback_stats`);
    expect(selected.body).toMatchObject([{ run_count: null, session_feedback_stats: { summary: { avg: 0.25 } } }]);
  });

  it('orders projects in both versions', async () => {
    const order = 'sort_by=feedback&sort_by_feedback_key=summary&sort_by_feedback_source=session';
    expect(await names(order)).toEqual(['empty', 'slow', 'fast']);
    expect(await names(`${order}&sort_by_desc=false`)).toEqual(['slow', 'empty', 'fast']);
    const found: (string | undefined)[] = [];
    for await (const { name } of newClient.sessions.listV2({
      id: Object.values(ids),
      sort_by: 'FEEDBACK',
      sort_by_feedback_key: 'summary',
      sort_by_feedback_source: 'SESSION',
    })) {
      found.push(name);
    }
    expect(found).toEqual(['empty', 'slow', 'fast']);
  });
});
