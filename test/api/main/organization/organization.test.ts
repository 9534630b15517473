import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = async (url: string, key = acme.adminKey) =>
  (await api.server.inject({ url, headers: { 'x-api-key': key } })).json();

describe('the organization', () => {
  it('is returned with the features of the server and the permissions of the key', async () => {
    const expected = {
      id: acme.id,
      display_name: 'acme',
      is_personal: false,
      config: { enable_granular_usage_reporting: true, can_use_bulk_export: true, can_use_langgraph_cloud: true },
      permissions: expect.arrayContaining(['organization:manage', 'runs:write']),
    };
    expect(await ask('/orgs/current')).toMatchObject(expected);
    expect(await ask('/orgs/current/info')).toMatchObject(expected);
    expect(await ask('/orgs')).toMatchObject([{ id: acme.id, display_name: 'acme', disabled: false }]);
  });

  it('returns the permissions of the key in use', async () => {
    const permissions = ['organization:read', 'runs:read'];
    const key = await addKey({ database: api.database, organizationId: acme.id, userId: acme.userId, permissions });
    expect((await ask('/orgs/current/info', key)).permissions).toEqual(permissions);
  });

  it('lists every permission', async () => {
    const listed = await ask('/orgs/permissions');
    expect(listed).toContainEqual({ name: 'runs:read', description: expect.any(String), access_scope: 'workspace' });
    expect(listed).toContainEqual(expect.objectContaining({ name: 'organization:read', access_scope: 'organization' }));
  });

  it('adds members, each email once', async () => {
    const add = (payload: object) =>
      api.server.inject({
        method: 'POST',
        url: '/orgs/current/members',
        headers: { 'x-api-key': acme.adminKey },
        payload,
      });
    const added = await add({ email: 'ada@acme.example', full_name: 'Ada', read_only: false, role_id: null });
    expect(added.json()).toMatchObject({ email: 'ada@acme.example', full_name: 'Ada', organization_id: acme.id });
    for (const [payload, status] of [
      [{ email: 'ADA@acme.example' }, 409],
      [{ email: 'no address' }, 422],
      [{}, 422],
      [{ email: 'b@acme.example', password: 'x' }, 400],
    ] as const) {
      expect((await add(payload)).statusCode).toBe(status);
    }
    const { members, pending, organization_id } = await ask('/orgs/current/members');
    expect([organization_id, pending]).toEqual([acme.id, []]);
    expect(members.map(({ email }: { email: string }) => email)).toEqual(['admin@acme.example', 'ada@acme.example']);
  });
});
