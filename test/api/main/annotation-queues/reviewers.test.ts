import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
/** Users of the organisation with a key each. */
const users: { readonly id: string; readonly key: string }[] = [];

const client = forSuite(() => openClient(api, acme.adminKey, {}, Client));
beforeAll(async () => {
  for (const name of ['ann', 'bob', 'eve']) {
    const id = randomUUID();
    await api.database.execute('INSERT INTO users (id, organization_id, email, full_name) VALUES ($1, $2, $3, $4)', [
      id,
      acme.id,
      `${name}@acme.example`,
      name,
    ]);
    const key = { database: api.database, organizationId: acme.id, userId: id, workspaceIds: [acme.workspaceIds[0]] };
    users.push({ id, key: await addKey(key) });
  }
});

const ask = askAs(api, acme);
const user = (index: number) => users[index]!;

async function addQueue(more: object = {}) {
  const id = randomUUID();
  const run = { id, name: 'run', run_type: 'chain', inputs: {}, start_time: new Date().toISOString() };
  expect((await ask('POST', '/runs', run)).status).toBe(202);
  await api.settled();
  const queue = (await ask('POST', '/annotation-queues', { name: 'queue', ...more })).body;
  const [added] = (await ask('POST', `/annotation-queues/${queue.id}/runs`, [id])).body;
  return { queueId: queue.id as string, itemId: added.id as string };
}

const reviewersOf = (queueId: string) => `/v1/platform/annotation-queues/${queueId}/reviewers`;
const assign = (queueId: string, userId: string) => ask('POST', reviewersOf(queueId), { identity_id: userId });
const review = async (itemId: string, status: string | null, key: string) =>
  (await ask('POST', `/annotation-queues/status/${itemId}`, { status }, key)).status;
const sectionOf = async ({ queueId, itemId }: { queueId: string; itemId: string }, key: string) =>
  (await ask('GET', `/annotation-queues/${queueId}/runs/resolve/${itemId}`, undefined, key)).body.section;

describe('reviewers', () => {
  it('are added once, listed and removed', async () => {
    const { queueId } = await addQueue();
    for (const { id } of [user(0), user(1), user(0)]) {
      const added = await assign(queueId, id);
      expect([added.status, added.body]).toEqual([201, { identity_id: id }]);
    }
    const read = await client.annotationQueues.retrieve(queueId);
    expect(read).toMatchObject({
      reviewer_access_mode: 'any',
      assigned_reviewers: [
        { id: user(0).id, name: 'ann', email: 'ann@acme.example' },
        { id: user(1).id, name: 'bob', email: 'bob@acme.example' },
      ],
    });
    const mine = async (key: string) =>
      (await ask('GET', '/annotation-queues?assigned_to_me=true', undefined, key)).body.map(
        ({ id }: { id: string }) => id,
      );
    expect([await mine(user(0).key), await mine(user(2).key)]).toEqual([[queueId], []]);
    for (let time = 0; time < 2; time += 1) {
      expect((await ask('DELETE', `${reviewersOf(queueId)}/${user(0).id}`)).status).toBe(204);
    }
    expect(await mine(user(0).key)).toEqual([]);
    expect((await client.annotationQueues.retrieve(queueId)).assigned_reviewers).toMatchObject([{ name: 'bob' }]);
  });

  it.each([
    ['no user', {}, 422],
    ['a malformed id', { identity_id: 'x' }, 422],
    ['an unknown user', { identity_id: randomUUID() }, 404],
  ])('%s is refused', async (_, payload, status) => {
    const { queueId } = await addQueue();
    const refused = await ask('POST', reviewersOf(queueId), payload);
    expect([refused.status, Object.keys(refused.body)]).toEqual([status, expect.arrayContaining(['error'])]);
  });

  it('of another organisation or an unknown queue are refused', async () => {
    const other = await addOrganization(api.database, 'other');
    const { queueId } = await addQueue();
    expect((await assign(queueId, other.userId)).status).toBe(404);
    expect((await assign(randomUUID(), user(0).id)).status).toBe(404);
    expect((await ask('DELETE', `${reviewersOf(randomUUID())}/${user(0).id}`)).status).toBe(404);
  });

  it('need the permission to change queues', async () => {
    const { queueId } = await addQueue();
    const { database } = api;
    const options = { database, organizationId: acme.id, userId: acme.userId, workspaceIds: [acme.workspaceIds[0]] };
    const reader = await addKey({ ...options, permissions: ['annotation-queues:read'] });
    expect((await ask('POST', reviewersOf(queueId), { identity_id: user(0).id }, reader)).status).toBe(403);
    expect((await ask('DELETE', `${reviewersOf(queueId)}/${user(0).id}`, undefined, reader)).status).toBe(403);
  });

  it('are limited', async () => {
    const { queueId } = await addQueue();
    await api.database.execute(
      `WITH added AS (INSERT INTO users (id, organization_id, email)
         SELECT gen_random_uuid(), $2, 'many' || n || '@acme.example' FROM generate_series(1, 100) AS n RETURNING id)
       INSERT INTO annotation_queue_reviewers (queue_id, user_id) SELECT $1, id FROM added`,
      [queueId, acme.id],
    );
    const refused = await assign(queueId, user(0).id);
    expect([refused.status, refused.body.error]).toEqual([422, expect.stringContaining('more than 100 reviewers')]);
    expect((await client.annotationQueues.retrieve(queueId)).assigned_reviewers).toHaveLength(100);
    // A member who left the organisation no longer counts.
    await api.database.execute("UPDATE users SET removed_at = now() WHERE email = 'many1@acme.example'");
    expect((await assign(queueId, user(0).id)).status).toBe(201);
  });
});

describe('a queue with assigned reviewers', () => {
  const assigned = { reviewer_access_mode: 'assigned' };

  it('completes a run when all of them have completed it, whatever the number of reviewers of an item', async () => {
    const item = await addQueue({ ...assigned, num_reviewers_per_item: 1 });
    for (const { id } of [user(0), user(1)]) await assign(item.queueId, id);
    const status = (key: string) =>
      ask('GET', `/annotation-queues/${item.queueId}/runs?status=completed`, undefined, key);
    // A reservation of one does not keep the others from reviewing.
    expect(await review(item.itemId, 'in_progress', user(0).key)).toBe(200);
    expect(await sectionOf(item, user(1).key)).toBe('needs_my_review');
    expect(await review(item.itemId, 'completed', user(1).key)).toBe(200);
    expect(await sectionOf(item, user(1).key)).toBe('needs_others_review');
    expect((await status(user(0).key)).body).toEqual([]);
    expect(await review(item.itemId, 'completed', user(0).key)).toBe(200);
    expect(await sectionOf(item, user(0).key)).toBe('completed');
    expect((await status(user(0).key)).body[0].completed_by.sort()).toEqual([user(0).id, user(1).id].sort());
    const url = `/v1/platform/annotation-queues/items/${item.itemId}/status`;
    expect((await ask('POST', url, { status: 'completed' }, user(0).key)).body).toMatchObject({ is_archived: true });
    // One who withdraws the review reopens the run.
    expect(await review(item.itemId, null, user(0).key)).toBe(200);
    expect(await sectionOf(item, user(0).key)).toBe('needs_my_review');
  });

  it('refuses reviews of other users', async () => {
    const item = await addQueue(assigned);
    await assign(item.queueId, user(0).id);
    for (const status of ['in_progress', 'completed']) {
      const refused = await ask('POST', `/annotation-queues/status/${item.itemId}`, { status }, user(2).key);
      expect([refused.status, refused.body.code]).toEqual([403, 'REVIEWER_NOT_ASSIGNED']);
    }
    expect(await sectionOf(item, user(2).key)).toBe('needs_others_review');
  });

  it('waits for reviewers if it has none, and does not wait for those that leave', async () => {
    const item = await addQueue(assigned);
    expect(await sectionOf(item, user(0).key)).toBe('needs_others_review');
    expect(await review(item.itemId, 'completed', user(0).key)).toBe(403);
    const leaving = randomUUID();
    await api.database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
      leaving,
      acme.id,
      'leaving@acme.example',
    ]);
    for (const id of [user(0).id, leaving]) await assign(item.queueId, id);
    expect(await review(item.itemId, 'completed', user(0).key)).toBe(200);
    expect(await sectionOf(item, user(0).key)).toBe('needs_others_review');
    expect((await ask('DELETE', `/orgs/current/members/${leaving}`)).status).toBe(200);
    expect(await sectionOf(item, user(0).key)).toBe('completed');
    expect((await client.annotationQueues.retrieve(item.queueId)).assigned_reviewers).toMatchObject([{ name: 'ann' }]);
  });

  it('is set and reset by the stock client', async () => {
    const { queueId } = await addQueue();
    const mode = async () => (await client.annotationQueues.retrieve(queueId)).reviewer_access_mode;
    await client.annotationQueues.update(queueId, { reviewer_access_mode: 'assigned' });
    expect(await mode()).toBe('assigned');
    await client.annotationQueues.update(queueId, { name: 'renamed' });
    expect(await mode()).toBe('assigned');
    await client.annotationQueues.update(queueId, { reviewer_access_mode: null });
    expect(await mode()).toBe('any');
    expect((await ask('PATCH', `/annotation-queues/${queueId}`, { reviewer_access_mode: 'some' })).status).toBe(422);
  });
});
