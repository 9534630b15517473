import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
const ask = (method: Method, path: string, payload?: object, key = acme.adminKey) =>
  api.ask(key, method, `/workspaces/current${path}`, payload);
const addKeyWith = (permissions: string[]) =>
  addKey({
    database: api.database,
    organizationId: acme.id,
    userId: acme.userId,
    workspaceIds: [acme.workspaceIds[0]],
    permissions,
  });

describe('secrets', () => {
  const keys = async () => (await ask('GET', '/secrets')).body.map(({ key }: { key: string }) => key);
  const remove = (key: string) =>
    api.server.inject({
      method: 'DELETE',
      url: `/workspaces/current/secrets/${key}`,
      headers: { 'x-api-key': acme.adminKey },
    });

  it('are set, replaced and deleted, and never returned', async () => {
    const secrets = [
      { key: 'OPENAI_API_KEY', value: 'sk-first' },
      { key: 'OTHER', value: 'sk-other' },
    ];
    const set = await ask('POST', '/secrets', secrets);
    expect([set.status, JSON.stringify(set.body)]).toEqual([200, expect.not.stringContaining('sk-')]);
    await ask('POST', '/secrets', [
      { key: 'OPENAI_API_KEY', value: 'sk-second' },
      { key: 'OTHER', value: null },
    ]);
    expect((await ask('GET', '/secrets')).body).toEqual([{ key: 'OPENAI_API_KEY' }]);
    expect((await ask('PUT', '/secrets/NEW', { value: 'sk-new' })).body).toEqual({ key: 'NEW' });
    expect((await ask('PUT', '/secrets/NEW', {})).status).toBe(200);
    expect(await keys()).toEqual(['NEW', 'OPENAI_API_KEY']);
    for (const _ of ['stored', 'gone']) expect((await remove('NEW')).statusCode).toBe(204);
    expect(await keys()).toEqual(['OPENAI_API_KEY']);

    const rows = await api.database.query<{ sealed: string }>(
      'SELECT sealed_value AS sealed FROM workspace_secrets',
      [],
    );
    expect(JSON.stringify(rows)).not.toContain('sk-');
    const bound = `${acme.workspaceIds[0]} OPENAI_API_KEY`;
    expect(api.services.secretSealer.open(rows[0]?.sealed ?? '', bound).text).toBe('sk-second');
    // A sealed value cannot be moved to another key.
    expect(() => api.services.secretSealer.open(rows[0]?.sealed ?? '', bound.replace('OPENAI', 'OTHER'))).toThrow();
  });

  it('have a limit, also for concurrent requests', async () => {
    const many = (prefix: string, count: number) =>
      Array.from({ length: count }, (_, at) => ({ key: `${prefix}${at}`, value: 'x' }));
    const statuses = await Promise.all(
      ['A', 'B'].map(async (name) => (await ask('POST', '/secrets', many(name, 150))).status),
    );
    expect(statuses.sort()).toEqual([200, 422]);
    expect(await keys()).toHaveLength(151);
  });

  it.each([
    ['POST', '/secrets', [{ key: '', value: 'x' }], 422],
    ['POST', '/secrets', [{ key: 'k' }], 422],
    ['POST', '/secrets', [{ key: 'k', value: '' }], 422],
    ['POST', '/secrets', [{ key: 'k', value: 'nul \0' }], 422],
    ['POST', '/secrets', [{ key: 'k', value: 'x'.repeat(70_000) }], 422],
    ['POST', '/secrets', {}, 422],
    ['PUT', '/secrets/NONE', {}, 404],
    ['PUT', '/secrets/k', { value: 'x', configs: [{ host_pattern: 'a' }] }, 400],
    ['GET', '/secrets?include_configs=true', undefined, 400],
  ] as const)('%s %s with %j gets %d', async (method, path, payload, status) => {
    expect((await ask(method, path, payload)).status).toBe(status);
  });

  it('need permissions', async () => {
    const reader = await addKeyWith(['secrets:read']);
    expect((await ask('GET', '/secrets', undefined, reader)).status).toBe(200);
    expect((await ask('POST', '/secrets', [], reader)).status).toBe(403);
  });
});

describe('tags', () => {
  it('are created, listed, changed and deleted', async () => {
    const made = await ask('POST', '/tag-keys', { key: 'team', description: 'owner' });
    expect(made.body).toMatchObject({ key: 'team', description: 'owner' });
    const url = `/tag-keys/${made.body.id}`;
    expect((await ask('POST', '/tag-keys', { key: 'team' })).status).toBe(409);
    const value = (await ask('POST', `${url}/tag-values`, { value: 'search' })).body;
    expect((await ask('POST', `${url}/tag-values`, { value: 'search' })).status).toBe(409);
    await ask('POST', `${url}/tag-values`, { value: 'ads' });
    expect((await ask('PATCH', url, { key: 'squad', description: null })).body).toMatchObject({
      key: 'squad',
      description: null,
    });
    expect((await ask('PATCH', `${url}/tag-values/${value.id}`, { description: 'about' })).body).toMatchObject({
      value: 'search',
      description: 'about',
    });
    expect((await ask('GET', url)).body).toMatchObject({ key: 'squad' });
    expect((await ask('GET', `${url}/tag-values/${value.id}`)).body).toMatchObject({ description: 'about' });
    expect((await ask('PATCH', `${url}/tag-values/${value.id}`, { value: 'ads' })).status).toBe(409);
    const values = [{ value: 'ads' }, { value: 'search' }];
    expect((await ask('GET', `${url}/tag-values`)).body).toMatchObject(values);
    expect((await ask('GET', '/tags')).body).toMatchObject([{ key: 'squad', values }]);
    expect((await ask('DELETE', `${url}/tag-values/${value.id}`)).status).toBe(200);
    expect((await ask('GET', `${url}/tag-values/${value.id}`)).status).toBe(404);
    expect((await ask('DELETE', url)).status).toBe(200);
    expect((await ask('DELETE', url)).status).toBe(404);
    expect((await ask('GET', '/tags')).body).toEqual([]);
  });

  it('a value of another key is not found', async () => {
    const [one, other] = await Promise.all(
      ['one', 'other'].map(async (key) => (await ask('POST', '/tag-keys', { key })).body.id),
    );
    const { id } = (await ask('POST', `/tag-keys/${one}/tag-values`, { value: 'v' })).body;
    expect((await ask('GET', `/tag-keys/${other}/tag-values/${id}`)).status).toBe(404);
    expect((await ask('PATCH', `/tag-keys/${other}/tag-values/${id}`, { value: 'w' })).status).toBe(404);
    expect((await ask('DELETE', `/tag-keys/${other}/tag-values/${id}`)).status).toBe(404);
  });

  it.each([
    ['POST', '/tag-keys', { key: '' }, 422],
    ['POST', '/tag-keys', { key: 'k'.repeat(256) }, 422],
    ['POST', '/tag-keys', { key: 'nul \0' }, 422],
    ['GET', '/tag-keys/x', undefined, 422],
    ['PATCH', `/tag-keys/${randomUUID()}`, { key: 'k' }, 404],
    ['POST', `/tag-keys/${randomUUID()}/tag-values`, { value: 'v' }, 404],
    ['GET', `/tag-keys/${randomUUID()}/tag-values`, undefined, 404],
    ['POST', '/taggings', { tag_value_id: randomUUID(), resource_type: 'dashboard', resource_id: randomUUID() }, 422],
    ['POST', '/taggings', { tag_value_id: randomUUID(), resource_type: 'project', resource_id: randomUUID() }, 404],
    ['DELETE', `/taggings/${randomUUID()}`, undefined, 404],
    ['GET', '/tags/resource', undefined, 422],
  ] as const)('%s %s with %j gets %d', async (method, path, payload, status) => {
    expect((await ask(method, path, payload)).status).toBe(status);
  });

  it('are given to resources, as long as these exist', async () => {
    const make = async (url: string, payload: object) => (await api.ask(acme.adminKey, 'POST', url, payload)).body;
    const dataset = await make('/datasets', { name: 'data' });
    const repo = await make('/repos', { repo_handle: 'prompt', is_public: false });
    const resources = {
      project: (await make('/sessions', { name: 'project' })).id,
      dataset: dataset.id,
      experiment: (await make('/sessions', { name: 'experiment', reference_dataset_id: dataset.id })).id,
      queue: (await make('/annotation-queues', { name: 'queue' })).id,
      prompt: repo.repo.id,
    };
    const tagKey = (await ask('POST', '/tag-keys', { key: 'of resources' })).body;
    const value = (await ask('POST', `/tag-keys/${tagKey.id}/tag-values`, { value: 'v' })).body;
    const tag = (resource_type: string, resource_id: string) =>
      ask('POST', '/taggings', { tag_value_id: value.id, resource_type, resource_id });
    for (const [type, id] of Object.entries(resources)) expect((await tag(type, id)).status).toBe(200);
    const again = await tag('project', resources.project);
    expect(again.body).toMatchObject({ resource_type: 'project', resource_id: resources.project });
    // A project is not an experiment.
    expect((await tag('experiment', resources.project)).status).toBe(404);

    const [listed] = (await ask('GET', `/taggings?tag_value_id=${value.id}`)).body;
    expect(listed).toMatchObject({ tag_key: 'of resources', tag_value: 'v' });
    expect(
      Object.fromEntries(Object.entries(listed.resources).map(([name, list]) => [name, (list as object[]).length])),
    ).toEqual({ projects: 1, experiments: 1, datasets: 1, prompts: 1, queues: 1, deployments: 0, evaluators: 0 });
    const queueResourceQuery = `resource_type=queue&resource_id=${resources.queue}`;
    expect((await ask('GET', `/tags/resource?${queueResourceQuery}`)).body).toMatchObject([
      { key: 'of resources', values: [{ value: 'v', taggings: [{ resource_id: resources.queue }] }] },
    ]);
    const both = await ask('POST', '/tags/resources', [
      { resource_type: 'dataset', resource_id: resources.dataset },
      { resource_type: 'queue', resource_id: resources.dataset },
      { resource_type: 'project', resource_id: resources.project },
    ]);
    expect(both.body[resources.project]).toHaveLength(1);

    await api.ask(acme.adminKey, 'DELETE', `/annotation-queues/${resources.queue}`);
    expect((await ask('GET', `/taggings?tag_value_id=${value.id}`)).body[0].resources.queues).toEqual([]);
    expect((await ask('GET', `/tags/resource?${queueResourceQuery}`)).body).toEqual([]);
    expect((await ask('DELETE', `/taggings/${again.body.id}`)).status).toBe(200);
    expect((await ask('GET', `/taggings?tag_value_id=${value.id}`)).body[0].resources.projects).toEqual([]);
  });

  it('end with their resource', async () => {
    const tagKey = (await ask('POST', '/tag-keys', { key: 'of deleted resources' })).body;
    const value = (await ask('POST', `/tag-keys/${tagKey.id}/tag-values`, { value: 'v' })).body;
    const tag = async (resource_type: string, resource_id: string) => {
      expect((await ask('POST', '/taggings', { tag_value_id: value.id, resource_type, resource_id })).status).toBe(200);
    };
    const make = async (url: string, payload: object) => (await api.ask(acme.adminKey, 'POST', url, payload)).body;
    const dataset = { id: randomUUID(), name: randomUUID() };
    await make('/datasets', dataset);
    const { id: projectId } = await make('/sessions', { name: randomUUID() });
    const { id: experimentId } = await make('/sessions', { name: randomUUID(), reference_dataset_id: dataset.id });
    const { id: queueId } = await make('/annotation-queues', { name: 'queue' });
    const { repo } = await make('/repos', { repo_handle: 'tagged', is_public: false });
    const resources = [
      ['project', projectId, `/sessions/${projectId}`],
      ['experiment', experimentId, `/sessions/${experimentId}`],
      ['queue', queueId, `/annotation-queues/${queueId}`],
      ['prompt', repo.id, `/repos/-/${repo.repo_handle}`],
      ['dataset', dataset.id, `/datasets/${dataset.id}`],
    ] as const;
    for (const [type, id] of resources) await tag(type, id);
    for (const [type, , url] of resources) {
      const { status } = await api.ask(acme.adminKey, 'DELETE', url);
      expect([type, status < 300]).toEqual([type, true]);
    }
    const rows = await api.database.query('SELECT resource_type FROM taggings WHERE tag_value_id = $1', [value.id]);
    expect(rows).toEqual([]);
  });

  it('are given to projects, datasets and prompts at their creation', async () => {
    const options = { autoBatchTracing: false, callerOptions: { maxRetries: 0 } };
    const client = await openClient(api, acme.adminKey, options);
    const tagKey = (await ask('POST', '/tag-keys', { key: 'at creation' })).body;
    const addValue = async (value: string) =>
      (await ask('POST', `/tag-keys/${tagKey.id}/tag-values`, { value })).body.id;
    const tagValueIds = [await addValue('one'), await addValue('two')];
    const names = async (type: string, id: string) =>
      (await ask('GET', `/tags/resource?resource_type=${type}&resource_id=${id}`)).body.flatMap(
        ({ values }: { values: { value: string }[] }) => values.map(({ value }) => value),
      );
    const project = await client.createProject({ projectName: 'tagged', tagValueIds });
    const dataset = await client.createDataset('tagged', { tagValueIds });
    expect(await names('project', project.id)).toEqual(['one', 'two']);
    expect(await names('dataset', dataset.id)).toEqual(['one', 'two']);
    const upserted = await client.createProject({ projectName: 'later', upsert: true });
    await client.createProject({ projectName: 'later', upsert: true, tagValueIds: [tagValueIds[1]!] });
    expect(await names('project', upserted.id)).toEqual(['two']);

    const create = (tag_value_ids: string[], key = acme.adminKey) =>
      api.ask(key, 'POST', '/repos', { repo_handle: 'tagged', is_public: false, tag_value_ids });
    expect((await create([randomUUID()])).status).toBe(404);
    expect((await create(tagValueIds, await addKeyWith(['prompts:create']))).status).toBe(403);
    const { repo } = (await create(tagValueIds)).body;
    expect(await names('prompt', repo.id)).toEqual(['one', 'two']);

    const unknown = { name: 'untagged', tag_value_ids: [randomUUID()] };
    for (const path of ['/sessions', '/datasets']) {
      expect((await api.ask(acme.adminKey, 'POST', path, unknown)).status).toBe(404);
      expect((await api.ask(acme.adminKey, 'GET', `${path}?name=untagged`)).body).toEqual([]);
      const writer = await addKeyWith(['projects:create', 'datasets:create']);
      expect((await api.ask(writer, 'POST', path, { name: 'untagged', tag_value_ids: tagValueIds })).status).toBe(403);
    }
  });

  it('select resources in lists', async () => {
    const post = async (url: string, { name }: { name: string }) => {
      const evaluator = { name, type: 'code', code_evaluator: {} };
      const payload = url === '/repos' ? { repo_handle: name, is_public: false } : { ...evaluator };
      const { body } = await api.ask(
        acme.adminKey,
        'POST',
        url,
        url.includes('/', 1) || url === '/repos' ? payload : { name },
      );
      return (body.repo ?? body.evaluator ?? body).id;
    };
    const types = {
      project: '/sessions',
      dataset: '/datasets',
      queue: '/annotation-queues',
      prompt: '/repos',
      evaluator: '/v1/platform/evaluators',
    };
    const key = (await ask('POST', '/tag-keys', { key: 'of lists' })).body.id;
    const addValue = async (value: string) => (await ask('POST', `/tag-keys/${key}/tag-values`, { value })).body.id;
    const [one, other, unused] = [await addValue('one'), await addValue('other'), await addValue('unused')];
    for (const [resource_type, url] of Object.entries(types)) {
      const [both, only] = [await post(url, { name: 'both' }), await post(url, { name: 'only' })];
      await post(url, { name: 'neither' });
      for (const [tag_value_id, resource_id] of [
        [one, both],
        [other, both],
        [one, only],
      ]) {
        expect((await ask('POST', '/taggings', { tag_value_id, resource_type, resource_id })).status).toBe(200);
      }
      const v2 = ['/sessions', '/datasets'].includes(url) ? [`/api/v2${url}`] : [];
      for (const path of [url, ...v2]) {
        const list = async (query: string, apiKey = acme.adminKey) => {
          const { body } = await api.ask(apiKey, 'GET', `${path}?${query}`);
          const rows = body.items ?? body.repos ?? body.evaluators ?? body;
          return rows.map((row: { name?: string; repo_handle?: string }) => row.name ?? row.repo_handle).sort();
        };
        expect(await list(`tag_value_id=${one}`)).toEqual(['both', 'only']);
        expect(await list(`tag_value_id=${one}&tag_value_id=${other}&tag_value_id=${one.toUpperCase()}`)).toEqual([
          'both',
        ]);
        const idName = { '/repos': '', '/v1/platform/evaluators': '', '/annotation-queues': 'ids' }[path] ?? 'id';
        if (idName) expect(await list(`tag_value_id=${one}&${idName}=${only}`)).toEqual(['only']);
        for (const id of [unused, randomUUID()]) expect(await list(`tag_value_id=${id}`)).toEqual([]);
        // The values of another workspace select nothing.
        expect(await list(`tag_value_id=${one}`, acme.workspaceKeys[1])).toEqual([]);
        expect((await api.ask(acme.adminKey, 'GET', `${path}?tag_value_id=x`)).status).toBe(422);
      }
    }
  });

  it('need permissions', async () => {
    const reader = await addKeyWith(['workspaces:read']);
    expect((await ask('GET', '/tags', undefined, reader)).status).toBe(200);
    expect((await ask('POST', '/tag-keys', { key: 'no' }, reader)).status).toBe(403);
  });
});

describe('shares of the workspace', () => {
  it('are listed and ended', async () => {
    const runId = randomUUID();
    const start_time = new Date().toISOString();
    const extra = { metadata: { thread_id: 'talk' } };
    await api.ask(acme.adminKey, 'POST', '/runs', {
      id: runId,
      name: 'root',
      run_type: 'chain',
      inputs: {},
      start_time,
      extra,
    });
    await api.settled();
    const { id: datasetId } = (await api.ask(acme.adminKey, 'POST', '/datasets', { name: 'shared' })).body;
    const { session_id } = (await api.ask(acme.adminKey, 'GET', `/runs/${runId}`)).body;
    const run = (await api.ask(acme.adminKey, 'PUT', `/runs/${runId}/share`)).body;
    const dataset = (await api.ask(acme.adminKey, 'PUT', `/datasets/${datasetId}/share`, {})).body;
    const thread = (await api.ask(acme.adminKey, 'POST', '/v2/threads/talk/share', { project_id: session_id })).body;
    const list = async (query = '') => (await ask('GET', `/shared${query}`)).body.entities;
    expect(await list()).toMatchObject([
      { type: 'thread', thread_id: 'talk', session_id, share_token: thread.share_token },
      { type: 'dataset', dataset_id: datasetId, dataset_name: 'shared', share_token: dataset.share_token },
      { type: 'run', run_id: runId, run_name: 'root', run_type: 'chain', session_id, share_token: run.share_token },
    ]);
    expect(await list('?limit=1&offset=1')).toMatchObject([{ type: 'dataset' }]);

    const [, stranger] = acme.workspaceKeys;
    expect((await ask('GET', '/shared', undefined, stranger)).body).toEqual({ entities: [] });
    await ask('DELETE', '/shared', { share_tokens: [run.share_token] }, stranger);
    await ask('DELETE', '/shared', { unshare_all: true }, stranger);
    expect(await list()).toHaveLength(3);
    await ask('DELETE', '/shared', {});
    expect(await list()).toHaveLength(3);
    expect((await ask('DELETE', '/shared', { share_tokens: [run.share_token, randomUUID()] })).status).toBe(200);
    expect((await api.ask('', 'GET', `/public/${run.share_token}/run`)).status).toBe(404);
    expect(await list()).toHaveLength(2);
    await ask('DELETE', '/shared', { unshare_all: true });
    expect(await list()).toEqual([]);
    expect((await ask('DELETE', '/shared', { share_tokens: ['x'] })).status).toBe(422);
    expect((await ask('GET', '/shared', undefined, await addKeyWith(['runs:share']))).status).toBe(403);
  });

  it('name the root run of an OpenTelemetry trace, whose id is not that of the trace', async () => {
    const now = `${Date.now()}000000`;
    const span = {
      ...{ traceId: randomUUID().replaceAll('-', ''), spanId: randomUUID().slice(-12).padStart(16, '0'), name: 'span' },
      ...{ startTimeUnixNano: now, endTimeUnixNano: now },
    };
    const traces = { resourceSpans: [{ scopeSpans: [{ spans: [span] }] }] };
    expect((await api.ask(acme.adminKey, 'POST', '/otel/v1/traces', traces)).status).toBe(200);
    await api.settled();
    const [{ id: sessionId }] = (await api.ask(acme.adminKey, 'GET', '/sessions')).body;
    const query = { session: [sessionId], filter: 'eq(name, "span")' };
    const [root] = (await api.ask(acme.adminKey, 'POST', '/runs/query', query)).body.runs;
    expect(root.id).not.toBe(root.trace_id);
    expect((await api.ask(acme.adminKey, 'PUT', `/runs/${root.id}/share`)).status).toBe(200);
    expect((await ask('GET', '/shared')).body.entities).toMatchObject([
      { type: 'run', run_id: root.id, run_name: 'span', session_id: sessionId },
    ]);
    await ask('DELETE', '/shared', { unshare_all: true });
  });
});
