import { randomUUID } from 'node:crypto';
import { parse } from 'csv-parse/sync';
import { Client } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let otherKey: string;

const client = forSuite(() => openClient(api, acme.adminKey, {}, Client));
beforeAll(async () => {
  const userId = randomUUID();
  await api.database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
    userId,
    acme.id,
    'other@acme.example',
  ]);
  const workspaceIds = [acme.workspaceIds[0]];
  otherKey = await addKey({ database: api.database, organizationId: acme.id, userId, workspaceIds });
});

const ask = askAs(api, acme);

/** Sends runs a second apart, and returns their ids. */
async function addRuns(count: number, project = 'reviewed'): Promise<string[]> {
  const ids = Array.from({ length: count }, () => randomUUID());
  for (const [n, id] of ids.entries()) {
    const payload = `{"id":"${id}","name":"run ${n}","run_type":"chain","inputs":{"n":12345678901234567890,"q":"a,\\"b\\""},
      "session_name":"${project}","start_time":"${new Date(Date.now() - 60_000 + n * 1_000).toISOString()}"}`;
    const headers = { 'x-api-key': acme.adminKey, 'content-type': 'application/json' };
    expect((await api.server.inject({ method: 'POST', url: '/runs', headers, payload })).statusCode).toBe(202);
  }
  await api.settled();
  return ids;
}

const addQueue = async (more: object = {}) =>
  (await ask('POST', '/annotation-queues', { name: 'queue', ...more })).body.id as string;

describe('items, by the stock SDK', () => {
  it('are added, listed, counted, found, changed, reviewed and removed', async () => {
    const queueId = await addQueue();
    const runIds = await addRuns(5);
    const { items = [] } = await client.annotationQueues.items.create(queueId, {
      items: runIds.map((run_id) => ({ item_type: 'RUN' as const, run_id })),
    });
    expect(items.map(({ run_id }) => run_id)).toEqual(runIds);
    const [first, second, , , last] = items.map(({ id = '' }) => id) as [string, string, string, string, string];

    const listed = [];
    const query = { status: 'needs_my_review' as const, page_size: 2 };
    for await (const item of client.annotationQueues.items.list(queueId, query)) listed.push(item);
    expect(listed).toMatchObject(items.map((item) => ({ ...item, completed_by: [], reserved_by: [] })));
    const count = async (more: { status: string; start_time?: string; min_start_time?: string }) =>
      (await client.annotationQueues.items.retrieveCount(queueId, more)).count;
    expect(await count({ status: 'all' })).toBe(5);
    expect(await count({ status: 'all', min_start_time: items[3]?.start_time ?? '' })).toBe(2);

    const placement = await client.annotationQueues.items.retrievePlacement(second, { queue_id: queueId });
    expect(placement).toMatchObject({ item_type: 'RUN', section: 'needs_my_review', position: 1 });
    const next = await client.annotationQueues.items.list(queueId, { ...query, cursor: placement.cursor ?? '' });
    expect(next.items?.map(({ run_id }) => run_id)).toEqual(runIds.slice(2, 4));
    const back = { ...query, cursor: placement.cursor ?? '', direction: 'backward' as const };
    expect((await client.annotationQueues.items.list(queueId, back)).items).toMatchObject([{ id: first }]);

    const added_at = '2020-01-01T00:00:00.000000Z';
    const moved = await client.annotationQueues.items.update(last, { queue_id: queueId, added_at });
    expect(new Date(moved.added_at ?? '').toISOString()).toBe('2020-01-01T00:00:00.000Z');
    expect(await client.annotationQueues.items.retrievePlacement(last, { queue_id: queueId })).toMatchObject({
      position: 0,
    });

    const viewed = await client.annotationQueues.items.createStatus(first, { status: 'viewed' });
    expect(viewed).toMatchObject({ queue_item_id: first, status: 'viewed', is_archived: false });
    const done = await client.annotationQueues.items.createStatus(first, { status: 'completed' });
    expect(done).toMatchObject({ status: 'completed', is_archived: true });
    expect(await count({ status: 'archived' })).toBe(1);
    expect(await count({ status: 'active' })).toBe(4);
    expect(await count({ status: 'archived', start_time: new Date(Date.now() + 60_000).toISOString() })).toBe(0);
    expect(await count({ status: 'archived', start_time: new Date(Date.now() - 60_000).toISOString() })).toBe(1);

    await client.annotationQueues.items.deleteAll(queueId, { item_ids: [first, second] });
    expect(await count({ status: 'all' })).toBe(3);
    // A cursor still contains the position of a removed item.
    const after = await client.annotationQueues.items.list(queueId, { ...query, cursor: placement.cursor ?? '' });
    expect(after.items?.map(({ run_id }) => run_id)).toEqual(runIds.slice(2, 4));
  });

  it('are restricted to times as the SDK documents them', async () => {
    const queueId = await addQueue();
    const [run_id = ''] = await addRuns(1);
    const { items = [] } = await client.annotationQueues.items.create(queueId, { items: [{ run_id }] });
    const started = items[0]?.start_time ?? '';
    const zero = '0001-01-01T00:00:00Z';
    const { items: queueItems } = client.annotationQueues;
    type Times = { min_start_time?: string; max_start_time?: string; start_time?: string; end_time?: string };
    const count = async (status: 'needs_my_review' | 'archived' | 'all', times: Times) =>
      (await queueItems.retrieveCount(queueId, { status, ...times })).count;
    for (const [times, expected] of [
      [{ min_start_time: started, max_start_time: started }, 1],
      [{ max_start_time: '2020-01-01T00:00:00Z' }, 0],
      [{ min_start_time: zero, max_start_time: zero }, 1],
    ] as const) {
      const page = await queueItems.list(queueId, { status: 'needs_my_review', ...times });
      expect([page.items?.length, await count('needs_my_review', times)]).toEqual([expected, expected]);
    }
    const never = { start_time: '2020-01-01T00:00:00Z', end_time: '2020-01-01T00:00:00Z' };
    expect([await count('needs_my_review', never), await count('all', never)]).toEqual([1, 1]);
    const id = items[0]?.id ?? '';
    await queueItems.createStatus(id, { status: 'completed' });
    const reviewed = '2026-01-02T03:04:05.000006Z';
    await queueItems.update(id, { queue_id: queueId, last_reviewed_time: reviewed });
    expect([await count('archived', never), await count('all', never)]).toEqual([0, 1]);
    expect(await count('archived', { start_time: reviewed })).toBe(0);
    expect(await count('archived', { end_time: reviewed })).toBe(0);
    const around = { start_time: '2026-01-02T03:04:05.000005Z', end_time: '2026-01-02T03:04:05.000007Z' };
    expect(await count('archived', around)).toBe(1);
  });

  it('are paged in their order, also within a millisecond', async () => {
    const queueId = await addQueue();
    const runIds = await addRuns(3);
    const { items = [] } = await client.annotationQueues.items.create(queueId, {
      items: runIds.map((run_id) => ({ item_type: 'RUN' as const, run_id })),
    });
    const ids = items.map(({ id = '' }) => id);
    for (const [index, id] of ids.entries())
      await client.annotationQueues.items.update(id, {
        queue_id: queueId,
        added_at: `2026-01-01T00:00:00.000${9 - index}00Z`,
      });
    for (const direction of ['forward', 'backward'] as const) {
      const listed: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await client.annotationQueues.items.list(queueId, {
          ...{ status: 'needs_my_review' as const, page_size: 1, direction },
          ...(cursor && { cursor }),
        });
        listed.push(...(page.items ?? []).map(({ id = '' }) => id));
        cursor = page.next_cursor || undefined;
      } while (cursor !== undefined && listed.length < 10);
      expect(listed).toEqual(direction === 'forward' ? ids.toReversed() : ids);
    }
  });

  it.each([
    ['GET', 'items?status=other', undefined, 422],
    ['GET', 'items', undefined, 422],
    ['GET', 'items?status=archived&cursor=x', undefined, 400],
    ['GET', 'items?status=archived&page_size=101', undefined, 422],
    ['GET', `items/${randomUUID()}/placement`, undefined, 404],
    ['POST', 'items', { items: [] }, 422],
    ['POST', 'items', { items: [{ item_type: 'THREAD', thread_id: 't', project_id: randomUUID() }] }, 404],
    ['POST', 'items', { items: [{ item_type: 'THREAD', thread_id: 't' }] }, 400],
    ['POST', 'items', { items: [{ item_type: 'RUN', thread_id: 't', project_id: randomUUID() }] }, 400],
    ['POST', 'items', { items: [{ item_type: 'THREAD', thread_id: 't\0', project_id: randomUUID() }] }, 422],
    ['POST', 'items', { items: [{ thread_id: 't', run_id: randomUUID(), project_id: randomUUID() }] }, 400],
    ['POST', 'items', { items: [{ run_id: randomUUID() }] }, 404],
    ['PATCH', `items/${randomUUID()}`, { added_at: '2026-01-01T00:00:00Z' }, 404],
    ['POST', 'items/delete', {}, 422],
  ] as const)('%s %s with %j gets %d', async (method, path, payload, status) => {
    const answer = await ask(method, `/v1/platform/annotation-queues/${await addQueue()}/${path}`, payload);
    expect(answer.status).toBe(status);
    expect(answer.body).toHaveProperty('error');
  });

  it('a user cannot view an item that another user is viewing', async () => {
    const queueId = await addQueue({ enable_reservations: true });
    const [run_id = ''] = await addRuns(1);
    const { items = [] } = await client.annotationQueues.items.create(queueId, { items: [{ run_id }] });
    const url = `/v1/platform/annotation-queues/items/${items[0]?.id}/status`;
    expect((await ask('POST', url, { status: 'viewed' })).status).toBe(200);
    expect((await ask('POST', url, { status: 'viewed' }, otherKey)).status).toBe(409);
    expect((await ask('POST', url, { status: null })).body).toMatchObject({ status: null });
    expect((await ask('POST', url, { status: 'viewed' }, otherKey)).status).toBe(200);
  });
});

describe('threads, by the stock SDK', () => {
  const sendThread = async (threadId: string, project: string) => {
    const id = randomUUID();
    const run = { id, name: 'turn', run_type: 'chain', session_name: project, start_time: new Date().toISOString() };
    const body = { ...run, inputs: {}, extra: { metadata: { thread_id: threadId } } };
    expect((await ask('POST', '/runs', body)).status).toBe(202);
    await api.settled();
    return (await ask('GET', `/sessions?name=${project}`)).body[0].id as string;
  };

  it('are added, listed beside runs, reviewed and removed', async () => {
    const queueId = await addQueue();
    const [run_id = ''] = await addRuns(1);
    const project_id = await sendThread('t 1', 'chats');
    await sendThread("t'2", 'chats');
    const threads = ['t 1', "t'2"].map((thread_id) => ({ item_type: 'THREAD' as const, thread_id, project_id }));
    const { items = [] } = await client.annotationQueues.items.create(queueId, { items: [{ run_id }, ...threads] });
    expect(items).toMatchObject([
      { item_type: 'RUN', run_id, thread_id: null },
      ...threads.map((thread) => ({ ...thread, run_id: null, start_time: null })),
    ]);
    const again = await client.annotationQueues.items.create(queueId, { items: threads });
    expect(again.items?.map(({ id }) => id)).toEqual(items.slice(1).map(({ id }) => id));

    const list = async (more: { item_type?: 'RUN' | 'THREAD'; min_start_time?: string }) => {
      const page = await client.annotationQueues.items.list(queueId, { status: 'needs_my_review', ...more });
      return page.items?.map(({ id }) => id);
    };
    const [run, first, second] = items.map(({ id = '' }) => id) as [string, string, string];
    expect(await list({})).toEqual([run, first, second]);
    expect(await list({ item_type: 'THREAD' })).toEqual([first, second]);
    expect(await list({ min_start_time: '2020-01-01T00:00:00Z' })).toEqual([run]);
    const placed = await client.annotationQueues.items.retrievePlacement(second, { queue_id: queueId });
    expect(placed).toMatchObject({ item_type: 'THREAD', section: 'needs_my_review', position: 2 });

    const done = await client.annotationQueues.items.createStatus(first, { status: 'completed' });
    expect(done).toMatchObject({ is_archived: true });
    expect((await client.annotationQueues.items.retrieveCount(queueId, { status: 'archived' })).count).toBe(1);
    // The older routes know only runs.
    const size = (await ask('GET', `/annotation-queues/${queueId}/total_size`)).body;
    expect([size, (await ask('GET', `/annotation-queues/${queueId}`)).body.total_runs]).toEqual([{ size: 1 }, 1]);
    expect((await ask('GET', `/annotation-queues/${queueId}/runs`)).body).toMatchObject([{ id: run_id }]);
    expect((await ask('GET', `/annotation-queues/${queueId}/runs/resolve/${second}`)).status).toBe(404);
    await client.annotationQueues.items.deleteAll(queueId, { item_ids: [second] });
    expect(await list({})).toEqual([run]);
  });

  it('may have long ids', async () => {
    // 3,000 bytes that Postgres cannot compress.
    const thread_id = Array.from({ length: 1_000 }, (_, n) =>
      String.fromCodePoint(0x4e00 + ((n * 7_919) % 20_000)),
    ).join('');
    const queueId = await addQueue();
    const items = [{ thread_id, project_id: await sendThread(thread_id, 'long ids') }];
    const add = async () => (await ask('POST', `/v1/platform/annotation-queues/${queueId}/items`, { items })).body;
    const added = await add();
    expect(added).toMatchObject({ items });
    expect(await add()).toEqual(added);
  });

  it('need a stored trace in the project, all or none, and go with the project', async () => {
    const queueId = await addQueue();
    const project_id = await sendThread('known', 'chats to delete');
    const elsewhere = await sendThread('elsewhere', 'other chats');
    const create = (...thread_ids: string[]) =>
      ask('POST', `/v1/platform/annotation-queues/${queueId}/items`, {
        items: thread_ids.map((thread_id) => ({ thread_id, project_id })),
      });
    expect((await create('known', 'elsewhere')).status).toBe(404);
    const count = async () => (await client.annotationQueues.items.retrieveCount(queueId, { status: 'all' })).count;
    expect(await count()).toBe(0);
    const stranger = await addOrganization(api.database, 'stranger');
    const theirs = (await ask('POST', '/annotation-queues', { name: 'theirs' }, stranger.adminKey)).body.id;
    const payload = { items: [{ thread_id: 'known', project_id }] };
    const url = `/v1/platform/annotation-queues/${theirs}/items`;
    expect((await ask('POST', url, payload, stranger.adminKey)).status).toBe(404);
    expect((await create('known')).status).toBe(200);
    expect(await count()).toBe(1);
    await ask('DELETE', `/sessions/${project_id}`);
    expect(await count()).toBe(0);
    expect(elsewhere).not.toBe(project_id);
  });
});

describe('populate', () => {
  it('adds the root runs of experiments once', async () => {
    const queueId = await addQueue();
    const runIds = await addRuns(3, 'experiment');
    await addRuns(1, 'elsewhere');
    const { id } = (await ask('GET', '/sessions?name=experiment')).body[0];
    for (let time = 0; time < 2; time += 1) {
      await client.annotationQueues.populate({ queue_id: queueId, session_ids: [id] });
    }
    const { body } = await ask('GET', `/annotation-queues/${queueId}/runs`);
    expect(body.map((run: { id: string }) => run.id)).toEqual(runIds);
    const unknown = { queue_id: queueId, session_ids: [randomUUID()] };
    expect((await ask('POST', '/annotation-queues/populate', unknown)).status).toBe(404);
    const { body: resolved } = await ask('GET', `/annotation-queues/${queueId}/runs/resolve/${body[1].queue_run_id}`);
    expect(resolved).toEqual({ section: 'needs_my_review', position: 1 });
  });

  it('also at the creation of a queue, which fails as a whole', async () => {
    const runIds = await addRuns(2, 'created with');
    const [{ id }] = (await ask('GET', '/sessions?name=created%20with')).body;
    const filled = { id: randomUUID(), name: 'filled', session_ids: [id.toUpperCase()] };
    const queue = (await ask('POST', '/annotation-queues', filled)).body;
    expect((await ask('POST', '/annotation-queues', filled)).status).toBe(409);
    const { body } = await ask('GET', `/annotation-queues/${queue.id}/runs`);
    expect(body.map((run: { id: string }) => run.id)).toEqual(runIds);
    const unknown = { name: 'not created', session_ids: [id, randomUUID()] };
    expect((await ask('POST', '/annotation-queues', unknown)).status).toBe(404);
    expect((await ask('GET', '/annotation-queues?name=not%20created')).body).toEqual([]);
  });
});

describe('export', () => {
  const exportCsv = async (queueId: string, payload: object = {}, key = acme.adminKey) => {
    const answer = await api.server.inject({
      method: 'POST',
      url: `/annotation-queues/${queueId}/export`,
      headers: { 'x-api-key': key },
      payload,
    });
    return { status: answer.statusCode, rows: () => parse(answer.body, { columns: true }) as Record<string, string>[] };
  };

  it('contains the completed runs with their feedback', async () => {
    const queueId = await addQueue();
    const runIds = await addRuns(25);
    const { items = [] } = await client.annotationQueues.items.create(queueId, {
      items: runIds.map((run_id) => ({ run_id })),
    });
    for (const { id = '' } of items.slice(0, 23)) {
      await client.annotationQueues.items.createStatus(id, { status: 'completed' });
    }
    await ask('POST', '/feedback', { run_id: runIds[0], key: 'helpful', score: 1, comment: 'so, so' });
    for (const score of [2, 3]) await ask('POST', '/feedback', { run_id: runIds[22], key: 'later', score });
    await api.settled();
    const rows = (await exportCsv(queueId)).rows();
    expect(rows.map(({ id }) => id)).toEqual(runIds.slice(0, 23));
    expect(rows[0]).toMatchObject({
      name: 'run 0',
      inputs: '{"n":12345678901234567890,"q":"a,\\"b\\""}',
      outputs: '',
      queue_run_id: items[0]?.id,
      feedback_stats: expect.stringMatching(/"helpful":.*"n":1,"avg":1/),
    });
    const details = (await exportCsv(queueId, { include_annotator_detail: true })).rows();
    const [detailed] = details;
    expect(details.map(({ feedback }) => JSON.parse(feedback ?? '').length)).toEqual([1, ...Array(21).fill(0), 2]);
    expect(JSON.parse(details[22]?.feedback ?? '')).toMatchObject([{ score: 3 }, { score: 2 }]);
    expect(JSON.parse(detailed?.completed_by ?? '')).toEqual([acme.userId]);
    expect(JSON.parse(detailed?.feedback ?? '')).toMatchObject([
      { key: 'helpful', score: 1, comment: 'so, so', user_name: 'admin@acme.example' },
    ]);
    expect((await exportCsv(queueId, { end_time: '2020-01-01T00:00:00Z' })).rows()).toEqual([]);
    const archived = await ask('GET', `/annotation-queues/${queueId}/total_archived?end_time=2020-01-01T00:00:00Z`);
    expect(archived.body).toEqual({ size: 0 });
  });

  it('contains large runs too, as the list of the stock SDK does', { timeout: 60_000 }, async () => {
    const queueId = await addQueue();
    const runIds = Array.from({ length: 5 }, () => randomUUID());
    const start_time = new Date().toISOString();
    for (const [n, id] of runIds.entries()) {
      const run = { id, name: `run ${n}`, run_type: 'chain', session_name: 'large', start_time };
      expect((await ask('POST', '/runs', { ...run, inputs: { text: 'x'.repeat(14 * 1024 ** 2) } })).status).toBe(202);
    }
    await api.settled();
    await client.addRunsToAnnotationQueue(queueId, runIds);
    const listed = [];
    for await (const run of client.listRunsFromAnnotationQueue(queueId)) listed.push(run);
    expect(listed.map(({ id }) => id)).toEqual(runIds);
    for (const { queue_run_id } of listed as unknown as { queue_run_id: string }[])
      await ask('POST', `/annotation-queues/status/${queue_run_id}`, { status: 'completed' });
    const rows = (await exportCsv(queueId)).rows();
    expect(rows.map(({ id, inputs }) => [id, inputs?.length])).toEqual(runIds.map((id) => [id, 14 * 1024 ** 2 + 11]));
  });

  it('needs the queue and the permissions for what it contains', async () => {
    const queueId = await addQueue();
    const permissions = ['annotation-queues:read', 'runs:read'];
    const options = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const workspaceIds = [acme.workspaceIds[0]];
    const reader = await addKey({ ...options, workspaceIds, permissions });
    const unprivilegedKey = await addKey({ ...options, workspaceIds, permissions: permissions.slice(0, 1) });
    expect((await exportCsv(randomUUID())).status).toBe(404);
    expect((await exportCsv(queueId, {}, reader)).status).toBe(200);
    expect((await exportCsv(queueId, { include_annotator_detail: true }, reader)).status).toBe(403);
    expect((await exportCsv(queueId, {}, unprivilegedKey)).status).toBe(403);
    expect((await exportCsv(queueId, { start_time: 'today' })).status).toBe(422);
  });
});

it('queues are deleted together, and unknown ones are reported', async () => {
  const [one, other] = [await addQueue(), await addQueue()];
  const unknown = randomUUID();
  const some = await ask('DELETE', `/annotation-queues?queue_ids=${one}&queue_ids=${unknown}`);
  expect([some.status, some.body]).toEqual([
    207,
    { deleted: [one], failed: [{ queue_id: unknown, error: expect.stringContaining('not found') }] },
  ]);
  expect((await ask('DELETE', `/annotation-queues?queue_ids=${other}`)).status).toBe(200);
  expect((await ask('GET', `/annotation-queues/${other}`)).status).toBe(404);
  expect((await ask('DELETE', '/annotation-queues')).status).toBe(422);
});
