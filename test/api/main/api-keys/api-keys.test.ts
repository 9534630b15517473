import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { type ApiUnderTest, addKey, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);

const inOneHour = () => new Date(Date.now() + 3_600_000).toISOString();
const owner = () => ({ database: api.database, organizationId: acme.id, userId: acme.userId });

describe('creating keys', () => {
  it('shows the key once, then only its short form', async () => {
    const { body } = await ask(acme.adminKey, 'POST', '/api-key', { description: 'for the tests' });
    expect(body).toMatchObject({
      key: expect.stringMatching(/^rlk_[\w-]{43}$/),
      short_key: `${body.key.slice(0, 8)}...${body.key.slice(-4)}`,
      description: 'for the tests',
      read_only: false,
      last_used_at: null,
      expires_at: null,
      workspace_names: ['acme 1'],
      default_workspace_name: null,
      user_email: 'admin@acme.example',
    });
    const listed = (await ask(acme.adminKey, 'GET', '/api-key')).body;
    expect(listed).toContainEqual({ ...body, key: undefined });
    expect(JSON.stringify(listed)).not.toContain(body.key);
    expect((await ask(body.key, 'GET', '/settings')).body.id).toBe(acme.workspaceIds[0]);
  });

  it('serves the routes that clients use', async () => {
    for (const url of [
      '/api-key',
      '/api-key/current',
      '/orgs/current/service-keys',
      '/orgs/current/personal-access-tokens',
    ]) {
      const made = await ask(acme.adminKey, 'POST', url, {});
      expect([made.status, made.body.description]).toEqual([200, 'Default API key']);
      expect((await ask(acme.adminKey, 'GET', url)).body).toContainEqual(expect.objectContaining({ id: made.body.id }));
      expect((await ask(acme.adminKey, 'DELETE', `${url}/${made.body.id}`)).body.id).toBe(made.body.id);
      expect((await ask(acme.adminKey, 'DELETE', `${url}/${made.body.id}`)).status).toBe(404);
      expect((await ask(made.body.key, 'GET', '/settings')).status).toBe(401);
    }
  });

  it('requires a workspace for an organisation-wide key without a default', async () => {
    const { body } = await ask(acme.adminKey, 'POST', '/orgs/current/service-keys', {});
    expect(body.workspace_names).toBeNull();
    const refused = await ask(body.key, 'GET', '/sessions');
    expect(refused.status).toBe(403);
    expect(refused.body).toMatchObject({
      error: 'org_scoped_key_requires_workspace',
      detail: 'org_scoped_key_requires_workspace',
    });
    expect((await ask(body.key, 'GET', '/orgs/current')).status).toBe(200);
    expect((await ask(body.key, 'GET', '/sessions', undefined, { 'x-tenant-id': acme.workspaceIds[1] })).status).toBe(
      200,
    );
    const payload = { default_workspace_id: acme.workspaceIds[1] };
    const other = (await ask(acme.adminKey, 'POST', '/orgs/current/service-keys', payload)).body;
    expect(other.default_workspace_name).toBe('acme 2');
    expect((await ask(other.key, 'GET', '/settings')).body.id).toBe(acme.workspaceIds[1]);
  });

  it('creates keys for known and new users, so that usage is attributed to them', async () => {
    const made = await ask(acme.adminKey, 'POST', '/api-key', { user_email: 'Ada@Acme.example' });
    expect(made.body.user_email).toBe('Ada@Acme.example');
    const again = await ask(acme.adminKey, 'POST', '/api-key', { user_email: 'ada@acme.example' });
    expect(again.body.user_id).toBe(made.body.user_id);
    const { members } = (await ask(acme.adminKey, 'GET', '/orgs/current/members')).body;
    expect(members.map(({ email }: { email: string }) => email)).toEqual(['admin@acme.example', 'Ada@Acme.example']);
    const stranger = await ask(acme.workspaceKeys[0], 'POST', '/api-key', { user_email: 'new@acme.example' });
    expect([stranger.status, stranger.body.remedy]).toEqual([403, expect.stringContaining('organization:manage')]);
  });

  it.each([
    [{ description: 7 }, 422],
    [{ description: 'nul \0' }, 422],
    [{ permissions: ['moon:land'] }, 422],
    [{ permissions: [] }, 422],
    [{ workspaces: ['x'] }, 422],
    [{ workspaces: [] }, 422],
    [{ workspaces: [randomUUID()] }, 403],
    [{ default_workspace_id: randomUUID() }, 403],
    [{ expires_at: 'tomorrow' }, 422],
    [{ expires_at: '2020-01-01T00:00:00' }, 400],
    [{ user_email: 'nobody' }, 422],
    [{ role_id: randomUUID() }, 400],
    [{ role_id: null, org_role_id: null, workspaces: null, permissions: null }, 200],
  ])('%j: %i', async (payload, status) => {
    expect((await ask(acme.adminKey, 'POST', '/api-key', payload)).status).toBe(status);
  });
});

describe('a key cannot grant more than it has', () => {
  it('permissions', async () => {
    const key = await addKey({
      ...owner(),
      permissions: ['api-keys:manage', 'runs:read'],
      workspaceIds: [acme.workspaceIds[0]],
    });
    const refused = await ask(key, 'POST', '/api-key', { permissions: ['runs:write'] });
    expect([refused.status, refused.body.remedy]).toEqual([403, "The API key lacks the permission 'runs:write'."]);
    const restrictedKey = (await ask(key, 'POST', '/api-key', { permissions: ['runs:read'] })).body;
    expect(restrictedKey.permissions).toEqual(['runs:read']);
    expect((await ask(restrictedKey.key, 'GET', '/sessions')).status).toBe(403);
    expect((await ask(key, 'POST', '/api-key', {})).body.permissions).toEqual(['api-keys:manage', 'runs:read']);
  });

  it('workspaces', async () => {
    const [first, second] = acme.workspaceKeys;
    expect((await ask(first, 'POST', '/api-key', { workspaces: [acme.workspaceIds[1]] })).status).toBe(403);
    expect((await ask(first, 'POST', '/orgs/current/service-keys', {})).status).toBe(403);
    const made = (await ask(second, 'POST', '/orgs/current/service-keys', { workspaces: [acme.workspaceIds[1]] })).body;
    expect(made.workspace_names).toEqual(['acme 2']);
    const listed = (await ask(first, 'GET', '/orgs/current/service-keys')).body as { workspace_names: string[] }[];
    expect(new Set(listed.flatMap(({ workspace_names }) => workspace_names))).toEqual(new Set(['acme 1']));
  });

  it('expiry', async () => {
    const expiresAt = inOneHour();
    const key = await addKey({ ...owner(), expiresAt, defaultWorkspaceId: acme.workspaceIds[0] });
    const inherited = (await ask(key, 'POST', '/api-key', {})).body;
    expect(new Date(inherited.expires_at).toISOString()).toBe(expiresAt);
    const later = new Date(Date.now() + 7_200_000).toISOString();
    expect((await ask(key, 'POST', '/api-key', { expires_at: later })).status).toBe(400);
    const sooner = new Date(Date.now() + 60_000).toISOString();
    expect((await ask(key, 'POST', '/api-key', { expires_at: sooner })).status).toBe(200);
  });

  it('a key that another process has just revoked creates no keys', async () => {
    const key = await addKey({ ...owner(), permissions: ['*'] });
    expect((await ask(key, 'POST', '/orgs/current/service-keys', {})).status).toBe(200);
    // This process still has the key in its cache.
    await api.database.execute(`UPDATE api_keys SET revoked_at = now() WHERE hash = sha256($1::bytea)`, [key]);
    const { status, body } = await ask(key, 'POST', '/orgs/current/service-keys', {});
    expect([status, body.code]).toEqual([401, 'API_KEY_INVALID']);
  });

  it('a read-only key creates no keys', async () => {
    const { body } = await ask(acme.adminKey, 'POST', '/api-key', { read_only: true });
    expect((await ask(body.key, 'GET', '/sessions')).status).toBe(200);
    for (const [method, url, payload] of [
      ['POST', '/sessions', { name: 'x' }],
      ['POST', '/runs', {}],
      ['POST', '/api-key', {}],
    ] as const) {
      expect((await ask(body.key, method, url, payload)).status).toBe(403);
    }
  });
});

it('does not list keys that have expired, which the limit does not count', async () => {
  const { body } = await ask(acme.adminKey, 'POST', '/api-key', { expires_at: inOneHour() });
  const readIds = async () => {
    const answers = ['/api-key', '/orgs/current/service-keys'].map((url) => ask(acme.adminKey, 'GET', url));
    return (await Promise.all(answers)).map((answer) => answer.body.map(({ id }: { id: string }) => id));
  };
  for (const ids of await readIds()) expect(ids).toContain(body.id);
  await api.database.execute(`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = $1`, [body.id]);
  for (const ids of await readIds()) expect(ids).not.toContain(body.id);
});

describe('revoking keys', () => {
  const addKeyWithPermissions = (permissions: string[]) => addKey({ ...owner(), permissions });
  const idOf = async (key: string) => {
    const listed = (await ask(acme.adminKey, 'GET', '/orgs/current/service-keys')).body;
    return listed.find(({ short_key }: { short_key: string }) => short_key === `${key.slice(0, 8)}...${key.slice(-4)}`)
      .id;
  };
  const end = async (key: string, victim: string) =>
    ask(key, 'DELETE', `/orgs/current/service-keys/${await idOf(victim)}`);

  it('is rejected if the other key has permissions that this key lacks', async () => {
    const key = await addKeyWithPermissions(['api-keys:manage']);
    const admin = await addKeyWithPermissions(['*']);
    const refused = await end(key, admin);
    expect([refused.status, refused.body.code]).toEqual([403, 'FORBIDDEN']);
    expect(refused.body.remedy).toMatch(/lacks the permission '[a-z-]+:[a-z]+'/);
    expect((await ask(admin, 'GET', '/orgs/current')).status).toBe(200);
  });

  it('revokes keys with the same or fewer permissions, and itself', async () => {
    const key = await addKeyWithPermissions(['api-keys:manage', 'runs:read']);
    expect((await end(key, await addKeyWithPermissions(['runs:read']))).status).toBe(200);
    expect((await end(key, await addKeyWithPermissions(['runs:read', 'api-keys:manage']))).status).toBe(200);
    expect((await end(key, key)).status).toBe(200);
    expect((await ask(key, 'GET', '/sessions')).status).toBe(401);
  });
});

describe('sending a key', () => {
  it('is rejected for another organisation, with the reason', async () => {
    const { status, body } = await ask(acme.adminKey, 'GET', '/settings', undefined, {
      'x-organization-id': randomUUID(),
    });
    expect([status, body.code]).toEqual([403, 'ORGANIZATION_FORBIDDEN']);
    expect(body.remedy).toContain('not the organisation that the API key belongs to');
  });

  it.each([
    [(key: string) => ({ 'x-api-key': key }), 200],
    [(key: string) => ({ 'X-API-Key': ` ${key} ` }), 200],
    [(key: string) => ({ authorization: `Bearer ${key}` }), 200],
    [(key: string) => ({ authorization: `bearer ${key}`, 'x-api-key': '', 'x-tenant-id': '' }), 200],
    [(key: string) => ({ authorization: `Basic ${key}` }), 401],
    [(key: string) => ({ authorization: `Bearer wrong`, 'x-api-key': key }), 200],
    [(key: string) => ({ authorization: key }), 401],
    [() => ({}), 401],
  ])('%s: %i', async (headers, status) => {
    const answer = await api.server.inject({ url: '/settings', headers: headers(acme.adminKey) });
    expect(answer.statusCode).toBe(status);
  });
});
