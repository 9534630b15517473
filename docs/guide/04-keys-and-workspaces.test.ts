// # 4. Keys and workspaces
//
// An organisation has workspaces; a workspace has projects. Nothing crosses from one workspace to another. An API key belongs
// to a user and reaches one workspace, some, or all; it carries permissions. `docs/reference/permissions.md` lists them.
//
// An agent server is a deployment, which belongs to a workspace: keys that do not reach that workspace get 403, and the
// traces of its graph runs go there. The default deployment is in the first workspace; RUNLAKE_AGENTS_DEPLOYMENT names
// another one.

import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

let runlake: RunlakeProcess;
let researchId: string;

interface NewKey {
  readonly id: string;
  readonly key: string;
  readonly short_key: string;
  readonly user_email: string;
}

const ask = (path: string, key: string, body?: object, headers: Record<string, string> = {}, method?: string) =>
  fetch(`${runlake.url}/api/v1${path}`, {
    method: method ?? (body === undefined ? 'GET' : 'POST'),
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
const newRun = () => ({ id: randomUUID(), name: 'answer', run_type: 'chain', inputs: {} });

beforeAll(async () => {
  // The first start makes an organisation, a workspace, a user and an admin key, and prints the key once.
  // RUNLAKE_BOOTSTRAP_API_KEY chooses the key instead, as here.
  runlake = await startRunlake();
  const made = await ask('/workspaces', runlake.apiKey, { display_name: 'Research' });
  ({ id: researchId } = (await made.json()) as { id: string });
});
afterAll(() => runlake?.remove());

describe('a key', () => {
  it('is shown once, when it is made', async () => {
    const made = (await (await ask('/api-key', runlake.apiKey, { description: 'CI' })).json()) as NewKey;
    expect(made.key).toMatch(/\S{20,}/);
    const listed = (await (await ask('/api-key', runlake.apiKey)).json()) as Partial<NewKey>[];
    const found = listed.find(({ id }) => id === made.id);
    expect(found?.short_key).toBe(made.short_key);
    expect(found?.key).toBeUndefined();
  });

  it('belongs to a user, made by the way where the email is new', async () => {
    const made = await ask('/api-key', runlake.apiKey, { user_email: 'ana@example.com' });
    expect(((await made.json()) as NewKey).user_email).toBe('ana@example.com');
    const { members } = (await (await ask('/orgs/current/members', runlake.apiKey)).json()) as {
      members: { email: string }[];
    };
    expect(members.map(({ email }) => email)).toContain('ana@example.com');
  });

  it('has the permissions that it was made with', async () => {
    const body = { permissions: ['runs:write'] };
    const { key } = (await (await ask('/api-key', runlake.apiKey, body)).json()) as NewKey;
    expect((await ask('/runs', key, newRun())).status).toBe(202);
    const refused = await ask('/runs/query', key, {});
    expect(refused.status).toBe(403);
    expect(await refused.json()).toMatchObject({ remedy: "The API key lacks the permission 'runs:read'." });
  });

  it('stops working when it is revoked', async () => {
    const { key, id } = (await (await ask('/api-key', runlake.apiKey, {})).json()) as NewKey;
    await ask(`/api-key/${id}`, runlake.apiKey, undefined, {}, 'DELETE');
    expect((await ask('/sessions', key)).status).toBe(401);
  });
});

describe('an organisation', () => {
  it('is created by the operator, whose organisation is the first one, with a workspace and an admin key', async () => {
    // Also at the command line: `runlake organizations create Acme --email ana@acme.example`.
    const made = await ask('/orgs', runlake.apiKey, { display_name: 'Acme', admin_email: 'ana@acme.example' });
    const { id, api_key: admin } = (await made.json()) as { id: string; api_key: { key: string } };
    expect((await ask('/runs', admin.key, newRun())).status).toBe(202);

    // Deleting ends its keys at once, and jobs delete its data; the answer says how far they are. `runlake
    // organizations delete` asks for the name first.
    const deleted = await ask(`/orgs/${id}`, runlake.apiKey, undefined, {}, 'DELETE');
    expect(await deleted.json()).toMatchObject({ disabled: true, deletion: { workspaces: 1 } });
    expect((await ask('/orgs', admin.key)).status).toBe(401);
  });
});

describe('a workspace', () => {
  it('is the one of the key, so an SDK needs nothing but endpoint and key', async () => {
    // X-Tenant-Id says for which workspace an admin acts.
    const made = await ask('/api-key', runlake.apiKey, { description: 'Research' }, { 'x-tenant-id': researchId });
    const { key } = (await made.json()) as NewKey;
    const run = newRun();
    await ask('/runs', key, run);
    expect((await ask(`/runs/${run.id}`, key)).status).toBe(200);

    // The first workspace does not have the run; the admin key finds it where it is.
    expect((await ask(`/runs/${run.id}`, runlake.apiKey)).status).toBe(404);
    expect((await ask(`/runs/${run.id}`, runlake.apiKey, undefined, { 'x-tenant-id': researchId })).status).toBe(200);
  });

  it('has to be named with a key of the whole organisation', async () => {
    const made = await ask('/orgs/current/service-keys', runlake.apiKey, { description: 'Reports' });
    const { key } = (await made.json()) as NewKey;
    const refused = await ask('/sessions', key);
    expect(refused.status).toBe(403);
    expect(await refused.json()).toMatchObject({ error: 'org_scoped_key_requires_workspace' });
    expect((await ask('/sessions', key, undefined, { 'x-tenant-id': researchId })).status).toBe(200);
  });
});
