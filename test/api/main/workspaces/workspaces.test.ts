import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);

describe('workspaces', () => {
  it('are created, usable at once, renamed and deleted', async () => {
    const made = await ask(acme.adminKey, 'POST', '/workspaces', { display_name: 'Third', tenant_handle: 'third' });
    expect(made).toMatchObject({
      status: 200,
      body: {
        organization_id: acme.id,
        is_deleted: false,
        is_personal: false,
        tenant_handle: 'third',
        read_only: false,
      },
    });
    const here = { 'x-tenant-id': made.body.id };
    expect((await ask(acme.adminKey, 'GET', '/settings', undefined, here)).body).toEqual({
      id: made.body.id,
      display_name: 'Third',
      created_at: made.body.created_at,
      tenant_handle: 'third',
    });
    const renamed = await ask(acme.adminKey, 'PATCH', `/workspaces/${made.body.id}`, { display_name: 'Renamed' });
    expect(renamed.body).toMatchObject({ display_name: 'Renamed', tenant_handle: 'third' });
    expect((await ask(acme.adminKey, 'GET', `/workspaces/${made.body.id}`)).body.display_name).toBe('Renamed');
    const own = (await ask(acme.adminKey, 'POST', '/api-key', {}, here)).body.key;
    expect((await ask(own, 'GET', '/settings')).status).toBe(200);

    expect((await ask(acme.adminKey, 'DELETE', `/workspaces/${made.body.id}`)).status).toBe(200);
    expect((await ask(own, 'GET', '/settings')).status).toBe(403);
    expect((await ask(acme.adminKey, 'GET', '/settings', undefined, here)).status).toBe(403);
    expect((await ask(acme.adminKey, 'GET', `/workspaces/${made.body.id}`)).status).toBe(404);
    expect((await ask(acme.adminKey, 'DELETE', `/workspaces/${made.body.id}`)).status).toBe(404);
    const ids = async (query: string) =>
      (await ask(acme.adminKey, 'GET', `/workspaces${query}`)).body.map(({ id }: { id: string }) => id);
    expect(await ids('')).toEqual([...acme.workspaceIds]);
    expect(await ids('?include_deleted=true')).toEqual([...acme.workspaceIds, made.body.id]);
    expect(
      (await ask(acme.adminKey, 'POST', '/workspaces', { display_name: 'x', tenant_handle: 'third' })).status,
    ).toBe(200);
  });

  it('are listed under /tenants, and only those that a key can access', async () => {
    const { body } = await ask(acme.workspaceKeys[1], 'GET', '/tenants');
    expect(body.map(({ id }: { id: string }) => id)).toEqual([acme.workspaceIds[1]]);
    expect((await ask(acme.workspaceKeys[1], 'GET', `/workspaces/${acme.workspaceIds[0]}`)).status).toBe(404);
    expect((await ask(acme.workspaceKeys[1], 'PATCH', `/workspaces/${acme.workspaceIds[1]}`, {})).status).toBe(403);
  });

  it.each([
    [{}, 422],
    [{ display_name: '' }, 422],
    [{ display_name: 'a\0' }, 422],
    [{ display_name: 'x'.repeat(257) }, 422],
    [{ display_name: 'x', id: 'y' }, 422],
    [{ display_name: 'x', tenant_handle: 'Not A Handle' }, 422],
    [{ display_name: "'; DROP TABLE workspaces; --" }, 200],
  ])('POST %j: %i', async (payload, status) => {
    expect((await ask(acme.adminKey, 'POST', '/workspaces', payload)).status).toBe(status);
  });

  it('reject ids and handles that are in use', async () => {
    const payload = { id: randomUUID(), display_name: 'x', tenant_handle: 'taken' };
    expect((await ask(acme.adminKey, 'POST', '/workspaces', payload)).status).toBe(200);
    const sameId = await ask(acme.adminKey, 'POST', '/workspaces', { ...payload, tenant_handle: null });
    expect([sameId.status, sameId.body.detail]).toEqual([409, expect.stringContaining('id')]);
    const sameHandle = await ask(acme.adminKey, 'PATCH', `/workspaces/${acme.workspaceIds[0]}`, {
      tenant_handle: 'taken',
    });
    expect([sameHandle.status, sameHandle.body.detail]).toEqual([409, expect.stringContaining('handle')]);
  });

  it('keep the last one, also if two are deleted concurrently', async () => {
    const pair = await addOrganization(api.database, 'pair');
    const answers = await Promise.all(
      pair.workspaceIds.map((id) => ask(pair.adminKey, 'DELETE', `/workspaces/${id}`, undefined)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    expect((await ask(pair.adminKey, 'GET', '/workspaces')).body).toHaveLength(1);
  });
});

it('counts the objects of a workspace', async () => {
  const [key] = acme.workspaceKeys;
  const stats = async () => (await ask(key, 'GET', '/workspaces/current/stats')).body;
  const before = await stats();
  expect(before).toMatchObject({ tenant_id: acme.workspaceIds[0], deployment_count: 1, repo_count: 0 });
  await ask(key, 'POST', '/datasets', { name: 'one' });
  await ask(key, 'POST', '/sessions', { name: 'one' });
  await ask(key, 'POST', '/repos', { repo_handle: 'one', is_public: false });
  await ask(key, 'POST', '/annotation-queues', { name: 'one' });
  await ask(key, 'POST', '/v1/platform/evaluators', { name: 'one', type: 'code', code_evaluator: {} });
  const counted = ['dataset', 'tracer_session', 'repo', 'annotation_queue', 'evaluator'].map((name) => `${name}_count`);
  const expected = Object.fromEntries(counted.map((name) => [name, before[name] + 1]));
  expect(await stats()).toEqual({ ...before, ...expected });
  const other = (await ask(acme.workspaceKeys[1], 'GET', '/workspaces/current/stats')).body;
  expect(other).toMatchObject({ tenant_id: acme.workspaceIds[1], dataset_count: 0, repo_count: 0 });
});
