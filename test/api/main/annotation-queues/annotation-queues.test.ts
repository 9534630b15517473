import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { collect } from '../../collect.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let otherKey: string;
let otherUserId: string;

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));
beforeAll(async () => {
  otherUserId = randomUUID();
  await api.database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
    otherUserId,
    acme.id,
    'other@acme.example',
  ]);
  otherKey = await addKey({
    database: api.database,
    organizationId: acme.id,
    userId: otherUserId,
    workspaceIds: [acme.workspaceIds[0]],
  });
});

const ask = askAs(api, acme);

/** Sends runs; a number that JavaScript would round shows that stored JSON is not formatted again. */
async function addRuns(count: number, project = 'reviewed') {
  const runs = Array.from({ length: count }, (_, n) => ({ id: randomUUID(), name: `run ${n}` }));
  for (const { id, name } of runs) {
    const answer = await api.server.inject({
      method: 'POST',
      url: '/runs',
      headers: { 'x-api-key': acme.adminKey, 'content-type': 'application/json' },
      payload: `{"id":"${id}","name":"${name}","run_type":"chain","inputs":{"n":12345678901234567890},"session_name":"${project}","start_time":"${new Date().toISOString()}"}`,
    });
    expect(answer.statusCode).toBe(202);
  }
  await api.settled();
  return runs;
}

async function addQueue(count: number, more: object = {}) {
  const runs = await addRuns(count);
  const { id } = (await ask('POST', '/annotation-queues', { name: 'queue', ...more })).body;
  const added = await ask(
    'POST',
    `/annotation-queues/${id}/runs`,
    runs.map((run) => run.id),
  );
  expect(added.status).toBe(200);
  return { url: `/annotation-queues/${id}`, id, runs, added: added.body as { id: string }[] };
}

describe('the stock SDK', () => {
  it('creates, finds, reads, changes and deletes queues', async () => {
    const rubricItems = [{ feedback_key: 'correct', description: 'Is it?', is_required: true }];
    const made = await client.createAnnotationQueue({
      name: 'first',
      description: 'about',
      rubricInstructions: 'Read it',
      rubricItems,
    });
    expect(made).toMatchObject({
      name: 'first',
      description: 'about',
      tenant_id: acme.workspaceIds[0],
      rubric_instructions: 'Read it',
      rubric_items: rubricItems,
      queue_type: 'single',
      num_reviewers_per_item: 1,
      enable_reservations: true,
      total_runs: 0,
    });
    expect(await client.readAnnotationQueue(made.id)).toEqual(made);
    const queueId = randomUUID();
    await client.createAnnotationQueue({ name: 'second', queueId });
    await expect(client.createAnnotationQueue({ name: 'third', queueId })).rejects.toThrow(/already exists/);
    const names = async (options: object) =>
      (await collect(client.listAnnotationQueues(options))).map(({ name }) => name);
    expect(await names({})).toEqual(['second', 'first']);
    expect(await names({ name: 'first' })).toEqual(['first']);
    expect(await names({ nameContains: 'SEC' })).toEqual(['second']);
    expect(await names({ queueIds: [made.id] })).toEqual(['first']);
    await client.updateAnnotationQueue(made.id, { name: 'renamed', description: 'new' });
    expect(await client.readAnnotationQueue(made.id)).toMatchObject({
      name: 'renamed',
      description: 'new',
      rubric_items: rubricItems,
    });
    await client.deleteAnnotationQueue(made.id);
    await expect(client.readAnnotationQueue(made.id)).rejects.toThrow(/not found/);
    await client.deleteAnnotationQueue(queueId);
  });

  it('adds, lists and removes runs', async () => {
    const runs = await addRuns(3);
    const { id } = await client.createAnnotationQueue({ name: 'runs' });
    await client.addRunsToAnnotationQueue(id, [runs[0]!.id, runs[1]!.id]);
    const { session_id: sessionId, start_time: startTime } = await client.readRun(runs[2]!.id);
    await client.addRunsToAnnotationQueue(id, [{ runId: runs[2]!.id, sessionId: sessionId!, startTime: startTime! }]);
    expect(await client.getSizeFromAnnotationQueue(id)).toEqual({ size: 3 });
    const listed = await collect(client.listRunsFromAnnotationQueue(id));
    expect(listed.map(({ name }) => name)).toEqual(['run 0', 'run 1', 'run 2']);
    expect(listed[0]).toMatchObject({ id: runs[0]!.id, added_at: expect.any(String), last_reviewed_time: null });
    for (const index of [0, 1, 2]) {
      expect(await client.getRunFromAnnotationQueue(id, index)).toEqual(listed[index]);
    }
    await expect(client.getRunFromAnnotationQueue(id, 3)).rejects.toThrow(/not found/);
    const queueRunId = (listed[1] as unknown as { queue_run_id: string }).queue_run_id;
    await client.deleteRunFromAnnotationQueue(id, queueRunId);
    expect((await collect(client.listRunsFromAnnotationQueue(id))).map(({ name }) => name)).toEqual(['run 0', 'run 2']);
  });
});

describe('runs of a queue', () => {
  it('are removed by their run id too, which the Python SDK sends', async () => {
    const { url, runs } = await addQueue(2);
    const other = await addQueue(1);
    expect((await ask('DELETE', `${other.url}/runs/${runs[0]!.id}`)).status).toBe(404);
    expect((await ask('DELETE', `${url}/runs/${runs[0]!.id}`)).status).toBe(200);
    expect((await ask('DELETE', `${url}/runs/${runs[0]!.id}`)).status).toBe(404);
    expect((await ask('GET', `${url}/runs`)).body).toMatchObject([{ id: runs[1]!.id }]);
  });

  it('are returned with their stored JSON, and in pages', async () => {
    const { url } = await addQueue(5);
    const page = await api.server.inject({
      url: `${url}/runs?limit=2&offset=1`,
      headers: { 'x-api-key': acme.adminKey },
    });
    expect(page.body).toContain('12345678901234567890');
    expect(page.headers['x-pagination-total']).toBe('5');
    expect(page.json()).toMatchObject([{ name: 'run 1' }, { name: 'run 2' }]);
  });

  it('are added once, all or none', async () => {
    const { url, id, runs, added } = await addQueue(2);
    const again = await ask('POST', `${url}/runs`, [{ run_id: runs[0]!.id }]);
    expect(again.body).toMatchObject([{ id: added[0]!.id, queue_id: id, run_id: runs[0]!.id }]);
    const [more] = await addRuns(1);
    expect((await ask('POST', `${url}/runs`, [more!.id, randomUUID()])).status).toBe(404);
    expect((await ask('GET', `${url}/total_size`)).body).toEqual({ size: 2 });
    expect((await ask('GET', `/annotation-queues/${runs[0]!.id}/queues`)).body).toMatchObject([{ id, total_runs: 2 }]);
  });

  it('are added by the stock SDK in one request, as many as the queue holds', { timeout: 60_000 }, async () => {
    const session_id = (await ask('POST', '/sessions', { name: 'many' })).body.id as string;
    const start_time = new Date().toISOString();
    const ids = Array.from({ length: 10_000 }, () => randomUUID());
    for (let at = 0; at < ids.length; at += 5_000) {
      const post = ids.slice(at, at + 5_000).map((id) => ({
        ...{ id, trace_id: id, dotted_order: `${start_time.replace(/[-:.]/g, '').replace('Z', '000Z')}${id}` },
        ...{ name: 'run', run_type: 'chain', session_id, start_time },
      }));
      expect((await ask('POST', '/runs/batch', { post })).status).toBe(202);
    }
    await api.settled();
    const { id } = await client.createAnnotationQueue({ name: 'many' });
    await client.addRunsToAnnotationQueue(id, ids);
    expect(await client.getSizeFromAnnotationQueue(id)).toEqual({ size: 10_000 });
    // Python formats times with an offset.
    const startTime = start_time.replace('Z', '000+00:00');
    await client.addRunsToAnnotationQueue(
      id,
      ids.map((runId) => ({ runId, sessionId: session_id, startTime })),
    );
    expect(await client.getSizeFromAnnotationQueue(id)).toEqual({ size: 10_000 });
  });

  it('that were deleted are left out', async () => {
    const { url } = await addQueue(2);
    const [gone] = await addRuns(1, 'to delete');
    await ask('POST', `${url}/runs`, [gone!.id]);
    expect((await ask('GET', `${url}/size`)).body).toEqual({ size: 3 });
    const project = (await ask('GET', '/sessions?name=to%20delete')).body[0];
    await ask('DELETE', `/sessions/${project.id}`);
    expect((await ask('GET', `${url}/size`)).body).toEqual({ size: 2 });
    expect((await ask('GET', `${url}/runs?limit=3`)).body).toHaveLength(2);
  });

  it('are removed in bulk', async () => {
    const { url, added } = await addQueue(4);
    const names = async () => (await ask('GET', `${url}/runs`)).body.map(({ name }: { name: string }) => name);
    await ask('POST', `${url}/runs/delete`, { run_ids: [added[0]!.id] });
    expect(await names()).toEqual(['run 1', 'run 2', 'run 3']);
    await ask('POST', `${url}/runs/delete`, { delete_all: true, exclude_run_ids: [added[2]!.id] });
    expect(await names()).toEqual(['run 2']);
    expect((await ask('POST', `${url}/runs/delete`, { delete_all: true })).status).toBe(200);
    expect(await names()).toEqual([]);
  });

  it('move when their time is changed', async () => {
    const { url, added } = await addQueue(2);
    await ask('PATCH', `${url}/runs/${added[0]!.id}`, {
      added_at: '2030-01-01T00:00:00Z',
      last_reviewed_time: '2026-01-01T00:00:00Z',
    });
    expect((await ask('GET', `${url}/runs`)).body).toMatchObject([
      { name: 'run 1' },
      { name: 'run 0', added_at: '2030-01-01T00:00:00.000000Z', last_reviewed_time: '2026-01-01T00:00:00.000000Z' },
    ]);
    expect((await ask('PATCH', `${url}/runs/${randomUUID()}`, {})).status).toBe(404);
  });
});

describe('reviews', () => {
  const setStatus = (id: string, status: string | null, key?: string) =>
    ask('POST', `/annotation-queues/status/${id}`, { status }, key);

  const sizes = async (url: string, key?: string) => {
    const size = async (status: string) => (await ask('GET', `${url}/size?status=${status}`, undefined, key)).body.size;
    return [await size('needs_my_review'), await size('needs_others_review'), await size('completed')];
  };

  it('complete a run', async () => {
    const { url, added } = await addQueue(2);
    expect((await setStatus(added[0]!.id, 'completed')).status).toBe(200);
    expect(await sizes(url)).toEqual([1, 0, 1]);
    expect((await ask('GET', `${url}/run/0`)).body.name).toBe('run 1');
    expect((await ask('GET', `${url}/total_archived`)).body).toEqual({ size: 1 });
    expect((await ask('GET', `${url}/runs?archived=true`)).body).toMatchObject([
      { name: 'run 0', completed_by: [acme.userId], last_reviewed_time: expect.any(String) },
    ]);
    const listNames = async (query = '') =>
      (await ask('GET', `${url}/runs${query}`)).body.map(({ name }: { name: string }) => name).sort();
    expect(await listNames()).toEqual(['run 0', 'run 1']);
    expect(await listNames('?archived=false')).toEqual(['run 1']);
    await setStatus(added[0]!.id, null);
    expect(await sizes(url)).toEqual([2, 0, 0]);
  });

  it('reserve a run for one user, until the reservation ends', async () => {
    const { url, added } = await addQueue(2, { reservation_minutes: 5 });
    const [first] = added;
    expect((await setStatus(first!.id, 'in_progress')).status).toBe(200);
    expect((await setStatus(first!.id, 'viewed')).status).toBe(200);
    const refused = await setStatus(first!.id, 'in_progress', otherKey);
    expect([refused.status, refused.body.detail]).toEqual([409, 'Other users review the run or have completed it.']);
    expect(await sizes(url)).toEqual([2, 0, 0]);
    expect(await sizes(url, otherKey)).toEqual([1, 1, 0]);
    expect((await ask('GET', `${url}/runs`)).body[0]).toMatchObject({ reserved_by: [acme.userId] });
    await api.database.execute(
      `UPDATE annotation_reviews SET reserved_at = reserved_at - interval '6 minutes' WHERE queue_run_id = $1`,
      [first!.id],
    );
    expect(await sizes(url, otherKey)).toEqual([2, 0, 0]);
    expect((await setStatus(first!.id, 'viewed', otherKey)).status).toBe(200);
    expect((await setStatus(first!.id, 'in_progress')).status).toBe(409);
  });

  it('at the same time: one user gets the run', async () => {
    const { added } = await addQueue(1);
    const answers = await Promise.all(
      [acme.adminKey, otherKey].map((key) => setStatus(added[0]!.id, 'in_progress', key)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
  });

  it('by two users complete a run, if the queue asks for two', async () => {
    const { url, added } = await addQueue(1, { num_reviewers_per_item: 2 });
    await setStatus(added[0]!.id, 'completed');
    expect(await sizes(url)).toEqual([0, 1, 0]);
    expect(await sizes(url, otherKey)).toEqual([1, 0, 0]);
    await setStatus(added[0]!.id, 'completed', otherKey);
    expect(await sizes(url)).toEqual([0, 0, 1]);
  });

  it('by more users than the queue asks for are refused', async () => {
    const { url, added } = await addQueue(2);
    const [first, second] = added;
    await setStatus(first!.id, 'completed');
    expect((await setStatus(first!.id, 'completed', otherKey)).status).toBe(409);
    expect((await setStatus(first!.id, 'completed')).status).toBe(200);
    expect((await ask('GET', `${url}/runs?status=completed`)).body[0]).toMatchObject({ completed_by: [acme.userId] });

    // A reservation counts as one of the users that the queue asks for.
    await setStatus(second!.id, 'in_progress');
    expect((await setStatus(second!.id, 'completed', otherKey)).status).toBe(409);
    await setStatus(second!.id, null);
    const both = await Promise.all([acme.adminKey, otherKey].map((key) => setStatus(second!.id, 'completed', key)));
    expect(both.map(({ status }) => status).sort()).toEqual([200, 409]);
  });

  it('move a run for one user', async () => {
    const { url, added } = await addQueue(2);
    await ask('POST', `/annotation-queues/status/${added[0]!.id}`, { override_added_at: '2030-01-01T00:00:00Z' });
    expect((await ask('GET', `${url}/run/0`)).body.name).toBe('run 1');
    expect((await ask('GET', `${url}/run/0`, undefined, otherKey)).body.name).toBe('run 0');
    expect((await setStatus(randomUUID(), 'completed')).status).toBe(404);
    expect((await setStatus(added[0]!.id, 'later')).status).toBe(422);
  });
});

it('needs runs:read to read the runs of a queue', async () => {
  const { url } = await addQueue(1);
  const key = await addKey({
    database: api.database,
    organizationId: acme.id,
    userId: acme.userId,
    workspaceIds: [acme.workspaceIds[0]],
    permissions: ['annotation-queues:read'],
  });
  for (const path of ['/runs', '/run/0']) {
    const denied = await ask('GET', `${url}${path}`, undefined, key);
    expect([denied.status, denied.body.remedy]).toEqual([403, expect.stringContaining('runs:read')]);
  }
  expect((await ask('GET', `${url}/size`, undefined, key)).body).toEqual({ size: 1 });
});

it('limits the runs of a queue', { timeout: 60_000 }, async () => {
  const { id, url } = await addQueue(1);
  await api.database.execute(
    `INSERT INTO annotation_queue_runs (id, queue_id, run_id)
     SELECT gen_random_uuid(), $1, gen_random_uuid() FROM generate_series(1, 9999)`,
    [id],
  );
  const [more] = await addRuns(1);
  const refused = await ask('POST', `${url}/runs`, [more!.id]);
  expect(refused).toMatchObject({
    status: 422,
    body: { detail: [{ msg: 'The queue would have more than 10000 runs.' }] },
  });
  expect((await ask('GET', `${url}/size`)).body).toEqual({ size: 1 });
});

it('all have the type `single`', async () => {
  const { id } = await addQueue(0, { queue_type: 'single' });
  const list = async (query: string) => {
    const { status, body } = await ask('GET', `/annotation-queues?ids=${id}${query}`);
    return [status, Array.isArray(body) ? body.map((queue) => queue.queue_type) : body.detail];
  };
  expect(await list('&queue_type=single')).toEqual([200, ['single']]);
  expect(await list('&queue_type=pairwise')).toEqual([200, []]);
  expect((await list('&queue_type=triple'))[0]).toBe(422);
  const create = (queue_type: string) => ask('POST', '/annotation-queues', { name: 'queue', queue_type });
  const refused = await create('pairwise');
  expect([refused.status, refused.body.detail]).toEqual([400, expect.stringMatching(/pairwise.*Supported: `single`/)]);
  expect((await create('triple')).status).toBe(422);
});
