import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../../../infra/config/load.ts';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, askAs, startApi } from '../../start-api.ts';

const { sharePublicPrompts } = loadConfig({ RUNLAKE_SHARE_PUBLIC_PROMPTS: 'true' }).config;
const api = forSuite(() => startApi({ config: { sharePublicPrompts } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const other = forSuite(() => addOrganization(api.database, 'other'));

const ask = askAs(api, acme);

async function addPrompt(handle: string, more: object = {}) {
  const made = await ask('POST', '/repos', { repo_handle: handle, is_public: false, ...more });
  expect(made.status).toBe(200);
  return made.body.repo;
}

/** Commits a manifest given as JSON text. */
const commit = (path: string, manifest: string, more = '') =>
  api.server.inject({
    method: 'POST',
    url: `/commits/${path}`,
    headers: { 'x-api-key': acme.adminKey, 'content-type': 'application/json' },
    payload: `{ "manifest": ${manifest}${more} }`,
  });

describe('manifests', () => {
  it('are returned byte for byte', async () => {
    await addPrompt('exact');
    const manifest = '{"b": 12345678901234567890, "a":1.0,\n "nul":"\\u0000", "lone":"\\ud800", "b": -0}';
    expect((await commit('-/exact', manifest)).statusCode).toBe(201);
    const got = await api.server.inject({ url: '/commits/-/exact/latest', headers: { 'x-api-key': acme.adminKey } });
    expect(got.body).toContain(`"manifest":${manifest},`);
    const listed = await api.server.inject({
      url: '/repos?with_latest_manifest=true&query=exact',
      headers: { 'x-api-key': acme.adminKey },
    });
    expect(listed.body).toContain(`"manifest":${manifest},`);
  });

  it.each([
    ['[1]', 422, 'manifest'],
    ['"text"', 422, 'manifest'],
    [`${'[{"a":'.repeat(600)}1${'}]'.repeat(600)}`, 422, 'nested deeper'],
    ['{"a":', 422, 'Invalid JSON'],
    [`{"a":"${'x'.repeat(2 * 1024 ** 2)}"}`, 413, 'larger than'],
  ])('%.20s are refused', async (manifest, status, text) => {
    await ask('POST', '/repos', { repo_handle: 'refusing', is_public: false });
    const answer = await commit('-/refusing', manifest);
    expect(answer.statusCode).toBe(status);
    expect(answer.body).toContain(text);
  });

  it('are returned without their model unless the model is asked for', async () => {
    await addPrompt('with-model');
    const prompt =
      '{"lc":1,"type":"constructor","id":["langchain_core","prompts","chat","ChatPromptTemplate"],"kwargs":{"n":1.0}}';
    const model = '{"lc":1,"id":["langchain","chat_models","openai","ChatOpenAI"],"kwargs":{}}';
    const whole = `{"lc":1,"id":["langchain_core","runnables","RunnableSequence"],"kwargs":{"first":${prompt},"last":${model}}}`;
    await commit('-/with-model', whole);
    const read = async (query: string) =>
      (
        await api.server.inject({
          url: `/commits/-/with-model/latest${query}`,
          headers: { 'x-api-key': acme.adminKey },
        })
      ).body;
    expect(await read('')).toContain(`"manifest":${prompt},`);
    expect(await read('?include_model=true')).toContain(`"manifest":${whole},`);
    expect(await read('?include=is_draft,model')).toContain(`"manifest":${whole},`);
  });
});

describe('commits', () => {
  it('at the same time from the same parent: one succeeds', async () => {
    await addPrompt('together');
    const first = await commit('-/together', '{"n":0}');
    const parent = first.json().commit.commit_hash.slice(0, 8);
    const answers = await Promise.all(
      [1, 2, 3, 4].map((n) => commit('-/together', `{"n":${n}}`, `,"parent_commit":"${parent}"`)),
    );
    expect(answers.map(({ statusCode }) => statusCode).sort()).toEqual([201, 409, 409, 409]);
    expect((await ask('GET', '/commits/-/together/')).body).toMatchObject({ total: 2 });
  });

  it('without a parent are all in one history', async () => {
    await addPrompt('all');
    await Promise.all([1, 2, 3, 4].map((n) => commit('-/all', `{"n":${n}}`)));
    const { commits } = (await ask('GET', '/commits/-/all')).body;
    expect(commits).toHaveLength(4);
    for (const [index, { parent_id }] of commits.entries()) expect(parent_id).toBe(commits[index + 1]?.id ?? null);
    const paged = await ask('GET', '/commits/-/all?limit=2&offset=1');
    expect(paged.body).toEqual({ commits: commits.slice(1, 3), total: 4 });
  });

  it('are tagged; tags move and are deleted', async () => {
    await addPrompt('tagged');
    const ids = [];
    for (const n of [1, 2]) ids.push((await commit('-/tagged', `{"n":${n}}`)).json().commit.id);
    const tags = '/repos/-/tagged/tags';
    expect((await ask('POST', tags, { tag_name: 'prod', commit_id: ids[0] })).body).toMatchObject({
      commit_id: ids[0],
    });
    expect((await ask('PATCH', `${tags}/prod`, { commit_id: ids[1] })).body).toMatchObject({ commit_id: ids[1] });
    expect((await ask('GET', `${tags}/prod`)).body).toMatchObject({ tag_name: 'prod', commit_id: ids[1] });
    expect((await ask('GET', '/commits/-/tagged?tag=prod')).body.commits).toMatchObject([{ id: ids[1] }]);
    expect((await ask('PATCH', `${tags}/none`, { commit_id: ids[1] })).status).toBe(404);
    expect((await ask('POST', tags, { tag_name: 'x', commit_id: randomUUID() })).status).toBe(404);
    for (const name of ['latest', 'a/b', 'a:b', '']) {
      expect((await ask('POST', tags, { tag_name: name, commit_id: ids[0] })).status).toBe(422);
    }
    expect((await ask('DELETE', `${tags}/prod`)).status).toBe(200);
    expect((await ask('DELETE', `${tags}/prod`)).status).toBe(404);
    expect((await ask('GET', tags)).body).toEqual([]);
  });

  it('of another repo are no parents and get no tags', async () => {
    await addPrompt('mine-a');
    await addPrompt('mine-b');
    const { id, commit_hash: hash } = (await commit('-/mine-a', '{}')).json().commit;
    expect((await commit('-/mine-b', '{}', `,"parent_commit":"${hash}"`)).statusCode).toBe(409);
    expect((await ask('POST', '/repos/-/mine-b/tags', { tag_name: 'x', commit_id: id })).status).toBe(404);
    expect((await ask('GET', `/commits/-/mine-b/${hash}`)).status).toBe(404);
  });
});

describe('bad input', () => {
  it.each(['Upper', '1st', 'a b', 'a/b', '', 'x'.repeat(257)])('handle %.20j', async (handle) => {
    expect((await ask('POST', '/repos', { repo_handle: handle, is_public: false })).status).toBe(422);
  });

  it('a public repo without a handle of the workspace', async () => {
    const made = await api.ask(other.workspaceKeys[1], 'POST', '/repos', { repo_handle: 'a', is_public: true });
    expect([made.status, made.body.detail]).toEqual([400, expect.stringContaining('POST /settings/handle')]);
    expect((await api.ask(other.workspaceKeys[1], 'GET', '/repos/-/a')).status).toBe(404);
  });

  it.each(['../x', '/x', 'a//b', 'a/.', 'a\\b', 'a\u0000', ''])('path %j of a directory', async (path) => {
    await ask('POST', '/repos', { repo_handle: 'paths', is_public: false, repo_type: 'skill' });
    const files = { [path]: { type: 'file', content: '' } };
    const url = '/v1/platform/hub/repos/-/paths/directories';
    expect((await ask('POST', `${url}/commits`, { files })).status).toBe(422);
    expect((await ask('GET', url)).status).toBe(404);
  });

  it('too many files, and operations of other types of repos', async () => {
    await addPrompt('a-prompt');
    await addPrompt('an-agent', { repo_type: 'agent' });
    const entries = Array.from({ length: 1_001 }, (_, n) => [`${n}`, { type: 'file', content: '' }]);
    const hub = (name: string) => `/v1/platform/hub/repos/-/${name}/directories`;
    const answer = await ask('POST', `${hub('an-agent')}/commits`, { files: Object.fromEntries(entries) });
    expect([answer.status, answer.body.error]).toEqual([422, expect.stringContaining('1000 files')]);
    expect((await ask('POST', `${hub('a-prompt')}/commits`, { files: {} })).status).toBe(404);
    expect((await ask('DELETE', hub('a-prompt'))).status).toBe(404);
    expect((await commit('-/an-agent', '{}')).statusCode).toBe(404);
    expect((await ask('DELETE', `${hub('an-agent')}?repo_type=skill`)).status).toBe(404);
    expect((await ask('DELETE', `${hub('an-agent')}?repo_type=agent`)).status).toBe(204);
  });
});

describe('public prompts, if the installation shares them,', () => {
  it('are readable by all workspaces, and writable only by their own', async () => {
    expect((await ask('POST', '/settings/handle', { tenant_handle: 'acme' })).body).toMatchObject({
      tenant_handle: 'acme',
    });
    await addPrompt('open', { is_public: true, description: 'for all' });
    await addPrompt('closed');
    await commit('acme/open', '{"n":1}');
    const [key] = other.workspaceKeys;
    expect((await api.ask(key, 'GET', '/repos/acme/open')).body.repo).toMatchObject({ full_name: 'acme/open' });
    expect((await api.ask(key, 'GET', '/commits/acme/open/latest')).body).toMatchObject({ manifest: { n: 1 } });
    expect((await api.ask(key, 'GET', '/commits/acme/closed/latest')).status).toBe(404);
    expect((await api.ask(key, 'GET', '/repos/-/open')).status).toBe(404);
    expect((await api.ask(key, 'GET', '/repos')).body).toEqual({ repos: [], total: 0 });
    const shared = { repos: [{ full_name: 'acme/open' }], total: 1 };
    expect((await api.ask(key, 'GET', '/repos?is_public=true')).body).toMatchObject(shared);
    expect((await api.ask(key, 'GET', '/repos?tenant_handle=acme')).body).toMatchObject(shared);
    expect((await api.ask(key, 'POST', '/likes/acme/open', { like: true })).body).toEqual({ likes: 1 });
    for (const [method, url, payload] of [
      ['PATCH', '/repos/acme/open', { description: 'x' }],
      ['DELETE', '/repos/acme/open', undefined],
      ['POST', '/commits/acme/open', { manifest: {} }],
    ] as const) {
      expect((await api.ask(key, method, url, payload)).status).toBe(404);
    }
    await ask('PATCH', '/repos/-/open', { is_public: false });
    expect((await api.ask(key, 'GET', '/repos/acme/open')).status).toBe(404);
  });

  it('need the permission prompts:share', async () => {
    const key = await addKey({
      database: api.database,
      organizationId: acme.id,
      userId: acme.userId,
      defaultWorkspaceId: acme.workspaceIds[0],
      permissions: ['prompts:create', 'prompts:update'],
    });
    const denied = await api.ask(key, 'POST', '/repos', { repo_handle: 'denied', is_public: true });
    expect([denied.status, denied.body.remedy]).toEqual([403, expect.stringContaining('prompts:share')]);
    expect((await api.ask(key, 'POST', '/repos', { repo_handle: 'denied', is_public: false })).status).toBe(200);
    expect((await api.ask(key, 'PATCH', '/repos/-/denied', { is_public: true })).status).toBe(403);
  });
});

it('counts downloads and views', async () => {
  await addPrompt('counted');
  await commit('-/counted', '{}');
  for (const query of ['', '', '?is_view=true']) await ask('GET', `/commits/-/counted/latest${query}`);
  await api.services.promptReads.flush();
  expect((await ask('GET', '/repos/-/counted')).body.repo).toMatchObject({ num_downloads: 2, num_views: 1 });
  expect((await ask('GET', '/commits/-/counted')).body.commits).toMatchObject([{ num_downloads: 2, num_views: 1 }]);
});

it('a read waits for no lock, and counts after the lock is released, without being asked', async () => {
  await addPrompt('locked');
  await commit('-/locked', '{}');
  await api.database.transaction(async (tx) => {
    await tx.query(`SELECT FROM repos WHERE handle = 'locked' FOR UPDATE`);
    expect((await ask('GET', '/commits/-/locked/latest')).status).toBe(200);
    // The flush fails at its lock timeout and keeps the counts.
    await api.services.promptReads.flush();
    expect((await ask('GET', '/commits/-/locked/latest')).status).toBe(200);
  });
  const downloads = async () => (await ask('GET', '/repos/-/locked')).body.repo.num_downloads;
  await expect.poll(downloads, { timeout: 10_000 }).toBe(2);
});
