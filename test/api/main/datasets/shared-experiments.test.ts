import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { getTenantContext } from '../../../../infra/fairness/tenant-context.ts';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../../infra/until.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Experiments on a dataset that is shared by a token, and the feedback of a shared trace. */

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let datasetId: string;
let [experimentId, secondId, projectId] = ['', '', ''];
let [token, closedToken] = ['', ''];
const examples: string[] = [];
const runs: Record<string, string> = {};

// biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
type Body = any;
const ask = (
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  url: string,
  payload?: object,
): Promise<{ status: number; body: Body }> => api.ask(acme.adminKey, method, url, payload);

/** Sends a request without a key. */
async function readOnce(path: string, payload?: object, share = token) {
  const url = `/public/${share}/${path}`;
  const answer = await api.server.inject({ method: payload ? 'POST' : 'GET', url, ...(payload && { payload }) });
  return {
    status: answer.statusCode,
    text: answer.body,
    headers: answer.headers,
    body: JSON.parse(answer.body) as Body,
  };
}

/** As {@link readOnce}, but repeats a request that the limit of searches refuses. */
async function read(...request: Parameters<typeof readOnce>): ReturnType<typeof readOnce> {
  let response = await readOnce(...request);
  await until('a search to be accepted', async () => {
    if (response.status === 429) response = await readOnce(...request);
    return response.status !== 429;
  });
  return response;
}

async function addRun(name: string, session_id: string, more: object = {}) {
  const id = randomUUID();
  const start_time = new Date().toISOString();
  const run = { id, name, run_type: 'chain', inputs: { name }, start_time, session_id, ...more };
  expect((await ask('POST', '/runs', run)).status).toBe(202);
  runs[name] = id;
}

beforeAll(async () => {
  const make = async (url: string, payload: object) => (await ask('POST', url, payload)).body.id as string;
  datasetId = await make('/datasets', { name: 'shared' });
  const closed = await make('/datasets', { name: 'without experiments' });
  for (const n of [1, 2])
    examples.push(await make('/examples', { dataset_id: datasetId, inputs: { n }, outputs: { n } }));
  experimentId = await make('/sessions', { name: 'first', reference_dataset_id: datasetId });
  secondId = await make('/sessions', { name: 'second', reference_dataset_id: datasetId });
  const otherId = await make('/sessions', { name: 'of closed', reference_dataset_id: closed });
  projectId = await make('/sessions', { name: 'secret' });
  for (const [at, reference_example_id] of examples.entries()) {
    await addRun(`first ${at}`, experimentId, { reference_example_id });
  }
  await addRun('second 0', secondId, { reference_example_id: examples[0] });
  await addRun('secret', projectId);
  await addRun('secret other', otherId);
  await api.settled();
  for (const name of ['first 0', 'second 0', 'secret']) {
    await ask('POST', '/feedback', { run_id: runs[name], key: `of ${name}`, score: 1, comment: name });
  }
  await ask('POST', '/feedback', { session_id: experimentId, key: 'summary', score: 0.5 });
  await api.settled();
  token = (await ask('PUT', `/datasets/${datasetId}/share?share_projects=true`, {})).body.share_token;
  closedToken = (await ask('PUT', `/datasets/${closed}/share`, {})).body.share_token;
});

const names = ({ body }: { body: Body }) => body.runs.map(({ name }: { name: string }) => name);

describe('runs of experiments', () => {
  it('are searched with a limit for each dataset', async () => {
    const statuses = (payload: object, requests: number) =>
      Promise.all(
        Array.from(
          { length: requests },
          async () => (await readOnce('datasets/runs/query', payload, closedToken)).status,
        ),
      );
    expect(await statuses({ filter: 'eq(name, "first 0")' }, 40)).toEqual(expect.arrayContaining([200, 429]));
    expect(await statuses({}, 12)).not.toContain(429);
  });

  it('are queried with filters, page by page', async () => {
    const all = await read('datasets/runs/query', {});
    expect(names(all)).toEqual(['second 0', 'first 1', 'first 0']);
    expect(all.headers['cache-control']).toBe('no-store');
    expect(all.body.runs[2]).toMatchObject({
      session_id: experimentId,
      reference_example_id: examples[0],
      feedback_stats: { 'of first 0': { n: 1 } },
    });
    for (const field of ['app_path', 's3_urls', 'share_token']) expect(all.body.runs[0]).not.toHaveProperty(field);
    expect(names(await read('datasets/runs/query', { session: [secondId] }))).toEqual(['second 0']);
    expect(names(await read('datasets/runs/query', { reference_example: examples[1] }))).toEqual(['first 1']);
    expect(names(await read('datasets/runs/query', { filter: 'eq(name, "first 0")' }))).toEqual(['first 0']);
    const first = await read('datasets/runs/query', { limit: 2 });
    expect(names(await read('datasets/runs/query', { limit: 2, cursor: first.body.cursors.next }))).toEqual([
      'first 0',
    ]);
    expect((await read('datasets/runs/query', { filter: 'eq(' })).status).toBe(400);
    expect((await read('datasets/runs/query', { limit: 101 })).status).toBe(422);
  });

  it('are read one by one', async () => {
    expect((await read(`datasets/runs/${runs['first 1']}`)).body).toMatchObject({ name: 'first 1' });
    for (const id of [runs.secret, runs['secret other'], randomUUID()]) {
      expect((await read(`datasets/runs/${id}`)).status).toBe(404);
    }
    expect((await read('datasets/runs/x')).status).toBe(422);
  });

  it('are listed with the examples, without attachments', async () => {
    const { body } = await read('examples/runs', { session_ids: [experimentId, secondId] });
    expect(body.map((example: Body) => [example.inputs.n, names({ body: example }).sort()])).toEqual([
      [2, ['first 1']],
      [1, ['first 0', 'second 0']],
    ]);
    expect(body[0]).not.toHaveProperty('attachment_urls');
    expect((await read('examples/runs', { session_ids: [projectId] })).status).toBe(404);
    expect((await read('examples/runs', { session_ids: [] })).status).toBe(422);
  });
});

describe('feedback', () => {
  const keys = (answer: { body: Body }) => answer.body.map(({ key }: { key: string }) => key).sort();

  it('of experiments is listed without users', async () => {
    const all = await read('datasets/feedback');
    expect(keys(all)).toEqual(['of first 0', 'of second 0', 'summary']);
    expect(all.text).not.toContain(acme.userId);
    expect(keys(await read(`datasets/feedback?session=${secondId}`))).toEqual(['of second 0']);
    expect(keys(await read(`datasets/feedback?run=${runs['first 0']}`))).toEqual(['of first 0']);
    expect(keys(await read('datasets/feedback?level=session'))).toEqual(['summary']);
    expect(keys(await read('datasets/feedback?source=FeedbackSourceType.API'))).toEqual(keys(all));
    expect(keys(await read('datasets/feedback?source=FeedbackSourceType.MODEL'))).toEqual([]);
    expect(keys(await read('datasets/feedback?limit=1&offset=1'))).toHaveLength(1);
    expect((await read('datasets/feedback?limit=0')).status).toBe(422);
  });

  it('of a shared trace is listed without users', async () => {
    const child = randomUUID();
    const times = { start_time: new Date().toISOString() };
    await ask('POST', '/runs', {
      ...times,
      id: child,
      name: 'child',
      run_type: 'tool',
      inputs: {},
      parent_run_id: runs.secret,
    });
    await api.settled();
    await ask('POST', '/feedback', { run_id: child, trace_id: runs.secret, key: 'of child', score: 1 });
    await api.settled();
    const share = (await ask('PUT', `/runs/${runs.secret}/share`)).body.share_token;
    const all = await read('feedbacks', undefined, share);
    expect(keys(all)).toEqual(['of child', 'of secret']);
    expect(all.text).not.toContain(acme.userId);
    expect(keys(await read(`feedbacks?run=${child}`, undefined, share))).toEqual(['of child']);
    expect(keys(await read(`feedbacks?run=${runs['first 0']}`, undefined, share))).toEqual([]);
    await ask('DELETE', `/runs/${runs.secret}/share`);
    expect((await read('feedbacks', undefined, share)).status).toBe(404);
  });

  it('is not readable after the project was deleted', async () => {
    const session_id = (await ask('POST', '/sessions', { name: 'to delete' })).body.id;
    await addRun('to delete', session_id);
    await api.settled();
    await ask('POST', '/feedback', { run_id: runs['to delete'], key: 'of deleted', score: 1 });
    await api.settled();
    const share = (await ask('PUT', `/runs/${runs['to delete']}/share`)).body.share_token;
    expect(keys(await read('feedbacks', undefined, share))).toEqual(['of deleted']);
    expect((await ask('DELETE', `/sessions/${session_id}`)).status).toBe(200);
    expect(await read('feedbacks', undefined, share)).toMatchObject({ status: 200, body: [] });
  });
});

describe('comparisons', () => {
  const bulk = async (...tokens: string[]) => {
    const url = `/public/datasets/sessions-bulk?${tokens.map((each) => `share_tokens=${each}`).join('&')}`;
    const answer = await api.server.inject({ method: 'GET', url });
    return { status: answer.statusCode, body: answer.json() as Body, headers: answer.headers };
  };

  it('are statistics of the runs of experiments', async () => {
    const all = await read('datasets/runs/stats', { select: ['run_count', 'feedback_stats'] });
    expect(all.body).toMatchObject({ run_count: 3, feedback_stats: { 'of second 0': { n: 1, avg: 1 } } });
    expect(all.headers['cache-control']).toBe('no-store');
    const count = async (payload: object, share = token) =>
      (await read('datasets/runs/stats', { select: ['run_count'], ...payload }, share)).body.run_count;
    expect(await count({ session: [secondId] })).toBe(1);
    expect(await count({ session: [secondId.toUpperCase()] })).toBe(1);
    expect(await count({ filter: 'eq(name, "first 0")' })).toBe(1);
    const grouped = await read('datasets/runs/stats', { select: ['run_count'], group_by: { attribute: 'name' } });
    expect(grouped.body).toMatchObject({ 'first 0': { run_count: 1 }, 'second 0': { run_count: 1 } });
    for (const payload of [
      { session: [projectId] },
      { session: [] },
      { id: [runs.secret, runs['secret other']] },
      { filter: 'or(eq(name, "secret"), eq(name, "secret other"))' },
      { trace: runs.secret },
    ]) {
      expect([payload, await count(payload)]).toEqual([payload, 0]);
    }
    expect(await count({ id: [runs.secret, runs['first 0']] })).toBe(1);
    expect(await count({}, closedToken)).toBe(0);
    expect((await read('datasets/runs/stats', { filter: 'eq(' })).status).toBe(400);
    expect((await read('datasets/runs/stats', {}, randomUUID())).status).toBe(404);
  });

  it('are limited in their rate', async () => {
    const requests = Array.from({ length: 40 }, () =>
      readOnce('datasets/runs/stats', { select: ['run_count'] }, closedToken),
    );
    expect((await Promise.all(requests)).map(({ status }) => status)).toEqual(expect.arrayContaining([200, 429]));
  });

  it('are comparative experiments, without extra and the workspace', async () => {
    const payload = { experiment_ids: [experimentId, secondId], name: 'pair', extra: { secret: 1 } };
    const { id } = (await ask('POST', '/datasets/comparative', payload)).body;
    await ask('POST', '/feedback', { run_id: runs['first 0'], key: 'won', score: 1, comparative_experiment_id: id });
    await api.settled();
    const listed = await read('datasets/comparative?name_contains=PAI');
    expect(listed.body).toEqual([
      {
        ...{ id, name: 'pair', description: null, created_at: expect.any(String), modified_at: expect.any(String) },
        experiments_info: expect.arrayContaining([
          { id: experimentId, name: 'first' },
          { id: secondId, name: 'second' },
        ]),
        feedback_stats: { won: expect.objectContaining({ n: 1, avg: 1 }) },
      },
    ]);
    expect((await read('datasets/comparative?name=other')).body).toEqual([]);
    expect((await read('datasets/comparative', undefined, closedToken)).body).toEqual([]);
    expect((await read('datasets/comparative', undefined, randomUUID())).status).toBe(404);
    expect((await read('datasets/comparative?limit=0')).status).toBe(422);
  });

  it('are experiments on several datasets', async () => {
    const { status, body, headers } = await bulk(closedToken, randomUUID(), token, token.toUpperCase());
    expect([status, headers['cache-control']]).toEqual([200, 'no-store']);
    expect(body.map(({ name }: { name: string }) => name)).toEqual(['second', 'first']);
    expect(body[0]).toMatchObject({
      tenant_id: '00000000-0000-0000-0000-000000000000',
      reference_dataset_id: datasetId,
    });
    expect(body[0]).not.toHaveProperty('extra');
    expect((await bulk('x')).status).toBe(422);
    expect((await bulk()).status).toBe(422);
    expect((await bulk(...Array.from({ length: 21 }, () => randomUUID()))).status).toBe(422);
  });
});

it('a token gives no access to anything else', async () => {
  const attempts = [
    ['datasets/runs/query', { session: [projectId] }],
    ['datasets/runs/query', { id: [runs.secret, runs['secret other']] }],
    ['datasets/runs/query', { filter: 'or(eq(name, "secret"), eq(name, "secret other"))' }],
    [`datasets/feedback?session=${projectId}`, undefined],
    [`datasets/feedback?run=${runs.secret}`, undefined],
  ] as const;
  for (const [path, payload] of attempts) {
    const { status, text } = await read(path, payload);
    expect([path, status, text]).toEqual([path, 200, expect.not.stringContaining('secret')]);
  }
  // The token of a dataset gives no access to the endpoints of a shared trace. Without `share_projects`, no experiments
  // are returned.
  expect((await read('feedbacks')).status).toBe(404);
  expect((await read('datasets/runs/query', {}, closedToken)).body.runs).toEqual([]);
  expect((await read('datasets/feedback', undefined, closedToken)).body).toEqual([]);
  for (const path of ['datasets/feedback', 'feedbacks', `datasets/runs/${runs['first 0']}`]) {
    expect((await read(path, undefined, randomUUID())).status).toBe(404);
  }
  await ask('DELETE', `/datasets/${datasetId}/share`);
  expect((await read('datasets/runs/query', {})).status).toBe(404);
  expect((await read('examples/runs', { session_ids: [experimentId] })).status).toBe(404);
});

it('queries of a reader of a shared dataset end when its client disconnects', async () => {
  const { share_token } = (await ask('PUT', `/datasets/${datasetId}/share?share_projects=true`)).body;
  const { database } = api.services;
  const { query } = database;
  const signals: boolean[] = [];
  const spy = vi.spyOn(database, 'query').mockImplementation(((sql: string, ...more: []) => {
    const context = getTenantContext();
    if (context !== undefined) signals.push(context.disconnected !== undefined);
    return query(sql, ...more);
  }) as typeof query);
  for (const path of ['datasets', 'examples', 'examples/count', 'datasets/sessions', 'datasets/comparative'])
    expect((await read(path, undefined, share_token)).status).toBe(200);
  expect((await read('datasets/runs/query', {}, share_token)).status).toBe(200);
  expect((await api.server.inject(`/public/datasets/sessions-bulk?share_tokens=${share_token}`)).statusCode).toBe(200);
  spy.mockRestore();
  expect(signals.length).toBeGreaterThanOrEqual(7);
  expect(signals).not.toContain(false);
});
