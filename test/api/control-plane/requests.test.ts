import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { addKey, addOrganization, startApi } from '../start-api.ts';

const api = forSuite(() => startApi({ config: { maxDeployments: 8 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let key: string;

beforeAll(async () => {
  [key] = acme.workspaceKeys;
});

const valid = {
  name: 'valid',
  source: 'github',
  source_config: { repo_url: 'https://example.com/repo.git', deployment_type: 'dev' },
  source_revision_config: { repo_ref: 'main', langgraph_config_path: 'langgraph.json' },
  secrets: [{ name: 'TOKEN', value: 'secret value' }],
};
const create = (change: object = {}) => api.ask(key, 'POST', '/v2/deployments', { ...valid, ...change });

it('creates a deployment with its first revision and its tracing project', async () => {
  const { status, body } = await create({ name: 'complete' });
  expect(status).toBe(201);
  expect(body).toMatchObject({
    name: 'complete',
    tenant_id: acme.workspaceIds[0],
    source: 'github',
    source_config: {
      repo_url: valid.source_config.repo_url,
      custom_url: expect.stringMatching(/\/deployments\/complete$/),
    },
    secrets: [{ name: 'TOKEN', value: '' }],
    status: 'READY',
    latest_revision_id: expect.any(String),
    active_revision_id: null,
  });
  const { body: revision } = await api.ask(
    key,
    'GET',
    `/v2/deployments/${body.id}/revisions/${body.latest_revision_id}`,
  );
  expect(revision).toMatchObject({ status: 'CREATING', transitions: [{ from_status: null, to_status: 'CREATING' }] });
  const { body: projects } = await api.ask(key, 'GET', '/sessions?name=complete');
  expect(projects).toMatchObject([{ id: body.tracing_project_id }]);
  const { body: listed } = await api.ask(
    key,
    'GET',
    `/v2/deployments?name_contains=COMP&deployment_type=dev&deployment_ids=${body.id}`,
  );
  expect(listed).toMatchObject({ resources: [{ id: body.id }], offset: 1 });
  expect((await api.ask(key, 'GET', '/v2/deployments?deployment_type=prod')).body.resources).toEqual([]);
  const stored = await api.database.query('SELECT * FROM deployments, deployment_revisions');
  expect(JSON.stringify(stored)).not.toContain('secret value');
});

describe.each<[what: string, change: object, field: RegExp]>([
  ['a file URL', { source_config: { repo_url: 'file:///etc' } }, /repo_url/],
  ['an ext URL', { source_config: { repo_url: 'ext::sh -c id' } }, /repo_url/],
  ['no URL', { source_config: {} }, /repo_url/],
  ['credentials in the URL', { source_config: { repo_url: 'https://me:token@example.com/a' } }, /GIT_TOKEN/],
  ['no reference', { source_revision_config: {} }, /repo_ref/],
  ['an option as reference', { source_revision_config: { repo_ref: '--upload-pack=id' } }, /repo_ref/],
  [
    'a path out of the source',
    { source_revision_config: { repo_ref: 'main', langgraph_config_path: '../a' } },
    /config_path/,
  ],
  ['an absolute path', { source_revision_config: { repo_ref: 'main', langgraph_config_path: '/a' } }, /config_path/],
  ['an image', { source_revision_config: { repo_ref: 'main', image_uri: 'a:1' } }, /image_uri/],
  ['a source without driver', { source: 'external_docker', source_revision_config: { image_uri: 'a:1' } }, /DRIVER/],
  ['builds on push', { source_config: { ...valid.source_config, build_on_push: true } }, /build_on_push/],
  [
    'contrary scales',
    { source_config: { ...valid.source_config, resource_spec: { min_scale: 3, max_scale: 2 } } },
    /min_scale/,
  ],
  [
    'a sidecar with a port of the machine',
    {
      source_config: {
        ...valid.source_config,
        resource_spec: { sidecars: [{ name: 'a', ports: [{ containerPort: 80, hostPort: 80 }] }] },
      },
    },
    /resource_spec\.sidecars\[0\]\.ports\[0\]\.hostPort: it is not allowed/,
  ],
  [
    'a reference to a Secret without Kubernetes',
    { secret_references: [{ name: 'A', secret_name: 'a', secret_key: 'a' }] },
    /secret_references: .*DRIVER kubernetes/,
  ],
  ['a name of a secret with a space', { secrets: [{ name: 'A B', value: 'x' }] }, /secrets\[0\]/],
  [
    'a secret that no process could get',
    { secrets: [{ name: 'A', value: '€'.repeat(40_000) }] },
    /secrets: .*120008 bytes/,
  ],
  [
    'secrets that are too large together',
    { secrets: [1, 2, 3].map((index) => ({ name: `A${index}`, value: 'x'.repeat(40_000) })) },
    /secrets: together/,
  ],
  ['an empty secret', { secrets: [{ name: 'A', value: '' }] }, /secrets\[0\]/],
  [
    'a repeated secret',
    {
      secrets: [
        { name: 'A', value: 'x' },
        { name: 'A', value: 'y' },
      ],
    },
    /secrets\[1\]/,
  ],
  [
    'a foreign tarball',
    { source: 'internal_source', source_config: {}, source_revision_config: { source_tarball_path: 'a/b' } },
    /tarball/,
  ],
])('%s', (_what, change, field) => {
  it('gets 400 with the field', async () => {
    const { status, body } = await create(change);
    expect([status, body.detail]).toEqual([400, expect.stringMatching(field)]);
  });
});

it.each<[what: string, change: object]>([
  ['no name', { name: '' }],
  ['a name that is too long', { name: 'x'.repeat(600) }],
  ['a NUL character', { name: 'a\0b' }],
  ['an unknown source', { source: 'bitbucket' }],
  ['an unknown type', { source_config: { ...valid.source_config, deployment_type: 'huge' } }],
  ['too many replicas', { source_config: { ...valid.source_config, resource_spec: { min_scale: 1_000 } } }],
  [
    'a NUL character in the settings',
    { source_config: { ...valid.source_config, listener_config: { nested: ['a\0b'] } } },
  ],
  ['secrets as an object', { secrets: { A: 'x' } }],
  ['no secrets', { secrets: undefined }],
])('%s gets 422 in the list form', async (_what, change) => {
  const { status, body } = await create(change);
  expect([status, body.detail]).toEqual([
    422,
    [expect.objectContaining({ loc: expect.any(Array), msg: expect.any(String) })],
  ]);
});

it.each(['x', '-'.repeat(36), `${randomUUID()},`, `${randomUUID()} ${randomUUID()}`])(
  'a list by the ids %j gets 422',
  async (ids) => {
    const url = `/v2/deployments?deployment_ids=${encodeURIComponent(ids)}`;
    expect((await api.ask(key, 'GET', url)).status).toBe(422);
  },
);

it('the address of a source that is built is read-only, so that a response can be sent back', async () => {
  const { body: made } = await create({
    name: 'sent back',
    source_config: { ...valid.source_config, custom_url: 'x' },
  });
  expect(made.source_config.custom_url).toMatch(/\/deployments\/sent-back$/);
  const { source_config } = made;
  await api.ask(key, 'PATCH', `/v2/deployments/${made.id}`, { source_config });
  const stored = await api.database.query('SELECT source_config FROM deployments WHERE id = $1', [made.id]);
  expect(JSON.stringify(stored)).not.toMatch(/custom_url":"/);
});

it('a name is unique in its workspace until its deployment is deleted', async () => {
  const first = await create({ name: 'Unique Name!' });
  expect(first.body.source_config.custom_url).toMatch(/\/deployments\/unique-name$/);
  expect(await create({ name: 'Unique Name!' })).toMatchObject({ status: 409, body: { detail: expect.any(String) } });
  expect((await api.ask(key, 'DELETE', `/v2/deployments/${first.body.id}`)).status).toBe(204);
  expect((await api.ask(key, 'DELETE', `/v2/deployments/${first.body.id}`)).status).toBe(404);
  expect((await api.ask(key, 'GET', `/v2/deployments/${first.body.id}`)).body.status).toBe('AWAITING_DELETE');
  const second = await create({ name: 'Unique Name!' });
  expect(second.body.source_config.custom_url).toMatch(/\/deployments\/unique-name-[0-9a-f]{8}$/);
  const missing = randomUUID();
  const ids = [second.body.id, second.body.id.toUpperCase(), missing].map((id) => `deployment_ids=${id}`).join('&');
  expect(await api.ask(key, 'DELETE', `/v2/deployments?${ids}`)).toEqual({
    status: 207,
    body: { deleted: [second.body.id], not_found: [missing] },
  });
});

it('the address of a deleted deployment stays with its organisation', async () => {
  const first = await create({ name: 'Addressed' });
  await api.ask(key, 'DELETE', `/v2/deployments/${first.body.id}`);
  await api.database.execute('DELETE FROM deployments WHERE id = $1', [first.body.id]);
  const stranger = await addOrganization(api.database, 'stranger of addresses');
  const others = await api.ask(stranger.workspaceKeys[0], 'POST', '/v2/deployments', { ...valid, name: 'addressed' });
  expect(others.body.source_config.custom_url).toMatch(/\/deployments\/addressed-[0-9a-f]{8}$/);
  const again = await create({ name: 'Addressed' });
  expect(again.body.source_config.custom_url).toMatch(/\/deployments\/addressed$/);
  await api.database.execute('DELETE FROM deployments WHERE id = $1', [again.body.id]);
});

it('changes a deployment: given fields only, and no field that is fixed', async () => {
  const { body: made } = await create({ name: 'changing' });
  const patch = (change: object) => api.ask(key, 'PATCH', `/v2/deployments/${made.id}`, change);
  const same = await patch({ source_config: { install_command: 'npm ci' } });
  expect(same.body).toMatchObject({
    latest_revision_id: made.latest_revision_id,
    source_config: { install_command: 'npm ci', repo_url: valid.source_config.repo_url },
  });
  const next = await patch({
    secrets: [
      { name: 'TOKEN', value: '' },
      { name: 'OTHER', value: 'x' },
    ],
  });
  expect(next.body.secrets).toEqual([
    { name: 'TOKEN', value: '' },
    { name: 'OTHER', value: '' },
  ]);
  expect(next.body.latest_revision_id).not.toBe(made.latest_revision_id);
  expect((await patch({ source_config: { repo_url: 'https://example.com/other' } })).status).toBe(400);
  expect((await patch({ source_config: { deployment_type: 'prod' } })).status).toBe(400);
  expect(
    (await patch({ source_revision_config: { source_tarball_path: `${made.tenant_id}/x/y.tar.gz` } })).status,
  ).toBe(400);
  const { body: revisions } = await api.ask(key, 'GET', `/v2/deployments/${made.id}/revisions?status=skipped,CREATING`);
  expect(revisions.resources.map(({ status }: { status: string }) => status)).toEqual(['CREATING', 'SKIPPED']);
  expect((await api.ask(key, 'GET', `/v2/deployments/${made.id}/revisions?status=NONE`)).status).toBe(400);
  const { status, body } = await api.ask(key, 'POST', `/v2/deployments/${made.id}/revisions`, {});
  expect([status, body.status]).toEqual([201, 'CREATING']);
});

it('keeps the source of a revision that was deployed again, and that of a new one, in later changes', async () => {
  const { body: made } = await create({ name: 'sources' });
  const path = `/v2/deployments/${made.id}`;
  const { object_path } = (await api.ask(key, 'POST', `${path}/upload-url`, {})).body;
  await api.database.execute('UPDATE source_uploads SET uploaded_at = now() WHERE object_path = $1', [object_path]);
  const setSecret = (value: string) => api.ask(key, 'PATCH', path, { secrets: [{ name: 'A', value }] });
  const readSource = async () => {
    const { body } = await api.ask(key, 'GET', path);
    const { body: latest } = await api.ask(key, 'GET', `${path}/revisions/${body.latest_revision_id}`);
    return [body.source, latest.source];
  };
  const uploaded = await api.ask(key, 'POST', `${path}/revisions`, {
    revision_source: 'internal_source',
    source_revision_config: { source_tarball_path: object_path },
  });
  expect(uploaded.status).toBe(201);
  await setSecret('1');
  expect(await readSource()).toEqual(['internal_source', 'internal_source']);
  await api.ask(key, 'PATCH', path, { revision_source: 'github' });
  expect(await readSource()).toEqual(['github', 'github']);
  await api.ask(key, 'POST', `${path}/revisions/${uploaded.body.id}/redeploy`, {});
  await setSecret('2');
  expect(await readSource()).toEqual(['internal_source', 'internal_source']);
  await api.database.execute('DELETE FROM deployments WHERE id = $1', [made.id]);
});

it('only the operator refers to objects of the cluster, also in a change', async () => {
  const resource_spec = { service_account_name: 'runlake' };
  const own = await create({ name: 'own', source_config: { ...valid.source_config, resource_spec } });
  expect(own.body.source_config).toMatchObject({ resource_spec });
  const stranger = await addOrganization(api.database, 'stranger');
  const [strangerKey] = stranger.workspaceKeys;
  const refused = { status: 400, body: { detail: expect.stringMatching(/resource_spec\.service_account_name: only/) } };
  const source_config = { ...valid.source_config, resource_spec };
  expect(await api.ask(strangerKey, 'POST', '/v2/deployments', { ...valid, source_config })).toMatchObject(refused);
  const made = await api.ask(strangerKey, 'POST', '/v2/deployments', valid);
  const path = `/v2/deployments/${made.body.id}`;
  expect(await api.ask(strangerKey, 'PATCH', path, { source_config: { resource_spec } })).toMatchObject(refused);
  expect(await api.ask(strangerKey, 'POST', `${path}/revisions`, { source_config: { resource_spec } })).toMatchObject(
    refused,
  );
});

it('limits the uploads of a deployment that no revision uses', async () => {
  const { body: made } = await create({
    name: 'uploads',
    source: 'internal_source',
    source_config: {},
    source_revision_config: {},
  });
  const requestLink = () => api.ask(key, 'POST', `/v2/deployments/${made.id}/upload-url`, {});
  const answers = await Promise.all(Array.from({ length: 22 }, requestLink));
  expect(answers.map(({ status }) => status).sort()).toEqual([...Array(20).fill(200), 422, 422]);
  const { object_path } = answers.find(({ status }) => status === 200)?.body ?? {};
  await api.database.execute('UPDATE source_uploads SET uploaded_at = now() WHERE object_path = $1', [object_path]);
  const change = { source_revision_config: { source_tarball_path: object_path } };
  expect((await api.ask(key, 'PATCH', `/v2/deployments/${made.id}`, change)).status).toBe(200);
  expect((await requestLink()).status).toBe(200);
});

it('limits the number of deployments of a workspace', async () => {
  const answers = [];
  for (let index = 0; index < 8; index += 1) answers.push((await create({ name: `many ${index}` })).status);
  const created = answers.indexOf(422);
  expect(answers.slice(created)).toEqual(Array(8 - created).fill(422));
  // Refused deployments leave no projects.
  const { body: projects } = await api.ask(key, 'GET', '/sessions?name_contains=many');
  expect(projects).toHaveLength(created);
  const { body: refused } = await create({ name: 'one more' });
  expect(refused).toMatchObject({ code: 'LIMIT_REACHED', message: expect.stringContaining('limit of 8 deployments') });
});

it('needs the permissions', async () => {
  const owner = {
    database: api.database,
    organizationId: acme.id,
    userId: acme.userId,
    workspaceIds: [acme.workspaceIds[0]],
  };
  const reader = await addKey({ ...owner, permissions: ['deployments:read'] });
  expect((await api.ask(reader, 'GET', '/v2/deployments')).status).toBe(200);
  expect((await api.ask(reader, 'POST', '/v2/deployments', valid)).status).toBe(403);
  const other = await addKey({ ...owner, permissions: ['runs:read'] });
  expect((await api.ask(other, 'GET', '/v2/deployments')).status).toBe(403);
  expect((await api.server.inject({ method: 'GET', url: '/v2/deployments' })).statusCode).toBe(401);
});

it('deletes the tracing project only with the permission for that, and records who asked for it', async () => {
  // The deployment gets the project that has its name.
  const { body: project } = await api.ask(key, 'POST', '/sessions', { name: 'production' });
  const owner = { database: api.database, organizationId: acme.id, userId: acme.userId };
  const workspaceIds = [acme.workspaceIds[0]];
  const granted = ['deployments:read', 'deployments:write'];
  const deployer = await addKey({ ...owner, workspaceIds, permissions: granted });
  const both = await addKey({ ...owner, workspaceIds, permissions: [...granted, 'projects:delete'] });
  await api.database.execute('DELETE FROM deployments');
  const { body: made } = await api.ask(deployer, 'POST', '/v2/deployments', { ...valid, name: 'production' });
  expect(made.tracing_project_id).toBe(project.id);
  const urls = [`/v2/deployments/${made.id}?`, `/v2/deployments?deployment_ids=${made.id}&`];
  for (const url of urls) {
    expect((await api.ask(deployer, 'DELETE', `${url}delete_tracing_project=true`)).status).toBe(403);
  }
  expect((await api.ask(key, 'GET', `/v2/deployments/${made.id}`)).body.status).toBe('READY');
  expect((await api.ask(both, 'DELETE', `${urls[0]}delete_tracing_project=true`)).status).toBe(204);
  const { body: log } = await api.ask(acme.adminKey, 'GET', '/audit-logs?action=project');
  expect(log.items).toMatchObject([
    {
      action: 'project.delete',
      actor: { kind: 'api_key', name: 'admin@acme.example' },
      target: { kind: 'project', id: project.id, name: 'production' },
      workspace_id: acme.workspaceIds[0],
      details: { deployment_id: made.id },
    },
  ]);
  const kept = await api.ask(deployer, 'POST', '/v2/deployments', { ...valid, name: 'other' });
  expect((await api.ask(deployer, 'DELETE', `/v2/deployments/${kept.body.id}`)).status).toBe(204);
});

it('names the tracing project that has its name, to which its traces go', async () => {
  await api.database.execute('DELETE FROM deployments');
  const { body: made } = await create({ name: 'renewed' });
  await api.ask(key, 'PATCH', `/sessions/${made.tracing_project_id}`, { name: 'former' });
  const read = async () => (await api.ask(key, 'GET', `/v2/deployments/${made.id}`)).body.tracing_project_id;
  expect(await read()).toBe(made.tracing_project_id);
  // The next trace creates it.
  const { body: project } = await api.ask(key, 'POST', '/sessions', { name: 'renewed' });
  expect(await read()).toBe(project.id);
  const { body: listed } = await api.ask(key, 'GET', '/v2/deployments');
  expect(listed.resources).toMatchObject([{ tracing_project_id: project.id }]);
  await api.ask(key, 'DELETE', `/v2/deployments/${made.id}?delete_tracing_project=true`);
  const { body: log } = await api.ask(acme.adminKey, 'GET', '/audit-logs?action=project.delete&limit=1');
  expect(log.items).toMatchObject([{ target: { id: project.id } }]);
});

it('a name stays taken until the tracing project is deleted with its deployment', async () => {
  await api.database.execute('DELETE FROM deployments');
  const { body: made } = await create({ name: 'replaced' });
  await api.ask(key, 'DELETE', `/v2/deployments/${made.id}?delete_tracing_project=true`);
  const { status, body } = await create({ name: 'replaced' });
  expect([status, body.detail]).toEqual([409, expect.stringMatching(/is being deleted with its tracing project/)]);
});

it('answers below /api-host too', async () => {
  expect((await api.ask(key, 'GET', '/api-host/v2/deployments')).status).toBe(200);
  expect((await api.ask(key, 'GET', '/api-host/v2/deployments/')).status).toBe(200);
  const { body: made } = await api.ask(key, 'GET', '/v2/deployments?limit=1');
  const [{ id, latest_revision_id }] = made.resources;
  const logs = await api.ask(key, 'POST', `/api-host/v1/projects/${id}/revisions/${latest_revision_id}/build_logs`, {});
  expect(logs).toMatchObject({ status: 200, body: { logs: [], next_offset: null } });
});
