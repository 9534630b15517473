import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { deleteWorkspaceData, requeueWorkspaceDeletions } from '../../../../pipelines/tenants/delete-workspace-data.ts';
import { forSuite } from '../../../for-suite.ts';
import { type ApiUnderTest, addKey, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() =>
  startApi({
    config: { maxOrganizations: 12 },
    services: { enqueueWorkspaceDeletion: async (id) => void queued.push(id) },
  }),
);
const operator = forSuite(() => addOrganization(api.database, 'operator'));
const tenant = forSuite(() => addOrganization(api.database, 'tenant'));
const queued: string[] = [];

const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);
const create = (body: object, key = operator.adminKey) => ask(key, 'POST', '/orgs', body);
const remove = (id: string, key = operator.adminKey) => ask(key, 'DELETE', `/orgs/${id}`);
const listed = async (id: string, query = '') =>
  (await ask(operator.adminKey, 'GET', `/orgs${query}`)).body.find((each: { id: string }) => each.id === id);

describe('a created organisation', () => {
  it('has a workspace with a handle, a user and a key that is shown once', async () => {
    const { status, body } = await create({ display_name: 'Größe & Co', admin_email: 'ana@example.com' });
    expect([status, body]).toEqual([
      200,
      {
        id: expect.any(String),
        ...{ display_name: 'Größe & Co', tier: null, is_personal: false, disabled: false, deletion: null },
        created_at: expect.stringMatching(/Z$/),
        workspace: {
          ...{ id: expect.any(String), display_name: 'Default' },
          tenant_handle: expect.stringMatching(/^gro-e-co-[0-9a-f]{8}$/),
        },
        admin: { id: expect.any(String), email: 'ana@example.com' },
        api_key: { id: expect.any(String), key: expect.any(String) },
      },
    ]);
    const { key } = body.api_key;
    expect((await ask(key, 'GET', '/orgs')).body).toMatchObject([{ id: body.id, display_name: 'Größe & Co' }]);
    expect((await ask(key, 'GET', '/settings')).body).toMatchObject({ tenant_handle: body.workspace.tenant_handle });
    const run = { id: randomUUID(), name: 'r', run_type: 'chain', inputs: {} };
    expect((await ask(key, 'POST', '/runs', run)).status).toBe(202);
    expect((await ask(key, 'POST', '/orgs/current/members', { email: 'bo@example.com' })).status).toBe(200);
    expect(JSON.stringify((await ask(key, 'GET', '/orgs/current/service-keys')).body)).not.toContain(key);
    expect(await listed(body.id)).toMatchObject({ display_name: 'Größe & Co' });
  });

  it('has the requested id and handle, which are then in use', async () => {
    const [id, handle] = [randomUUID(), `h-${randomUUID()}`];
    const names = { display_name: 'x', workspace_display_name: 'First', tenant_handle: handle };
    const { body } = await create({ id: id.toUpperCase(), ...names });
    expect(body).toMatchObject({ id, workspace: { display_name: 'First', tenant_handle: handle } });
    expect((await create({ id, display_name: 'x' })).status).toBe(409);
    expect((await create({ ...names })).body).toMatchObject({ code: 'CONFLICT' });
    expect(
      (await ask(operator.adminKey, 'GET', '/orgs')).body.filter((each: { id: string }) => each.id === id),
    ).toEqual([expect.objectContaining({ id })]);
  });

  it.each([
    ['nothing', {}],
    ['an empty name', { display_name: '' }],
    ['a long name', { display_name: 'x'.repeat(257) }],
    ['a NUL character', { display_name: 'a\0b' }],
    ['half of a surrogate pair', { display_name: 'a\ud800' }],
    ['a name that is a number', { display_name: 1 }],
    ['a malformed id', { display_name: 'x', id: '1' }],
    ['a malformed handle', { display_name: 'x', tenant_handle: 'Not a handle' }],
    ['a long handle', { display_name: 'x', tenant_handle: 'x'.repeat(65) }],
    ['a malformed email', { display_name: 'x', admin_email: 'x' }],
    ['a NUL character in the name of the workspace', { display_name: 'x', workspace_display_name: '\0' }],
  ])('is not created with %s', async (_what, body) => {
    expect((await create(body)).status).toBe(422);
  });

  it('accepts is_personal false, as clients send it', async () => {
    expect((await create({ display_name: 'Team', is_personal: false })).status).toBe(200);
    expect((await create({ display_name: 'Team', is_personal: true })).body.code).toBe('PARAMETER_NOT_SUPPORTED');
  });

  it('respects the limit, also under concurrent creation', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => create({ display_name: 'many' })));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 422]));
    const all = (await ask(operator.adminKey, 'GET', '/orgs')).body;
    expect(all).toHaveLength(12);
    for (const { status, body } of answers) if (status === 200) expect((await remove(body.id)).status).toBe(200);
  });
});

describe('keys without permission', () => {
  it.each([
    ['an admin key of another organisation', () => tenant.adminKey, 'first organisation'],
    ['a key of a workspace of the operator', () => operator.workspaceKeys[0], 'organizations:manage'],
  ])('%s', async (_what, key, reason) => {
    const answers = [await create({ display_name: 'x' }, key()), await remove(tenant.id, key())];
    for (const { status, body } of answers)
      expect([status, body.remedy]).toEqual([403, expect.stringContaining(reason)]);
    const ids = (await ask(key(), 'GET', '/orgs?include_deleted=true')).body.map(({ id }: { id: string }) => id);
    expect(ids).toEqual([key() === tenant.adminKey ? tenant.id : operator.id]);
  });

  it('a read-only key of the operator lists only its own organisation', async () => {
    const wanted = { description: 'k', read_only: true, organization_wide: true };
    const made = await ask(operator.adminKey, 'POST', '/orgs/current/service-keys', wanted);
    const { key } = made.body;
    expect((await create({ display_name: 'x' }, key)).status).toBe(403);
    expect((await ask(key, 'GET', '/orgs')).body).toHaveLength(1);
  });
});

describe('a deleted organisation', () => {
  it('loses keys, workspaces and users at once; repeating the request enqueues the rest again', async () => {
    const gone = await addOrganization(api.database, 'gone');
    queued.length = 0;
    const { status, body } = await remove(gone.id.toUpperCase());
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({
        ...{ id: gone.id, disabled: true },
        deletion: { deleted_at: expect.any(String), workspaces: 2, purged_workspaces: 0 },
      }),
    ]);
    expect(new Set(queued)).toEqual(new Set(gone.workspaceIds));
    for (const key of [gone.adminKey, ...gone.workspaceKeys]) expect((await ask(key, 'GET', '/orgs')).status).toBe(401);
    expect(await listed(gone.id)).toBeUndefined();

    await deleteWorkspaceData(
      { ...api.services, ...api.services.exports, ...api.services.system },
      { workspaceId: gone.workspaceIds[0] },
    );
    expect(await listed(gone.id, '?include_deleted=true')).toMatchObject({
      deletion: { workspaces: 2, purged_workspaces: 1 },
    });
    queued.length = 0;
    expect((await remove(gone.id)).body.deletion).toEqual({ ...body.deletion, purged_workspaces: 1 });
    expect(queued).toEqual([gone.workspaceIds[1]]);
    await deleteWorkspaceData(
      { ...api.services, ...api.services.exports, ...api.services.system },
      { workspaceId: gone.workspaceIds[1] },
    );
    expect((await remove(gone.id)).body.deletion).toMatchObject({ workspaces: 2, purged_workspaces: 2 });
    expect((await ask(tenant.adminKey, 'GET', '/orgs')).status).toBe(200);
  });

  it('includes resources that are created at the same time', async () => {
    const gone = await addOrganization(api.database, 'late');
    await remove(gone.id);
    const key = await addKey({ database: api.database, organizationId: gone.id, userId: operator.userId });
    expect((await ask(key, 'GET', '/orgs')).status).toBe(401);
    const late = randomUUID();
    await api.database.execute(`INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, 'late')`, [
      late,
      gone.id,
    ]);
    const found: string[] = [];
    const enqueueWorkspaceDeletion = async (id: string) => void found.push(id);
    await requeueWorkspaceDeletions({ database: api.database, enqueueWorkspaceDeletion });
    expect(found).toEqual(expect.arrayContaining([late, ...gone.workspaceIds]));
  });

  it('cannot be that of the operator or an unknown one', async () => {
    expect((await remove(operator.id)).body).toMatchObject({ code: 'CONFLICT' });
    expect((await remove(randomUUID())).status).toBe(404);
    for (const id of ['1', '%00', `${operator.id}x`]) expect((await remove(id)).status, id).toBe(422);
    expect((await ask(operator.adminKey, 'GET', '/orgs/current')).status).toBe(200);
  });
});
