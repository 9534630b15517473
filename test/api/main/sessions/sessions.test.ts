import { randomUUID } from 'node:crypto';
import type { InjectOptions } from 'fastify';
import { describe, expect, it } from 'vitest';
import { maxParsedDepth } from '../../../../api/server/request-body.ts';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));

async function ask(method: NonNullable<InjectOptions['method']>, url: string, payload?: object | string) {
  const answer = await api.server.inject({
    method,
    url,
    headers: { 'x-api-key': acme.workspaceKeys[1], 'content-type': 'application/json' },
    ...(payload === undefined ? {} : { payload }),
  });
  return { status: answer.statusCode, body: answer.json() };
}

const create = async (more: object = {}) => (await ask('POST', '/sessions', { name: randomUUID(), ...more })).body;
const names = async (query: string) =>
  (await ask('GET', `/sessions?${query}`)).body.map(({ name }: { name: string }) => name);

describe('the stock SDK', () => {
  it('creates, finds, reads, updates, lists and deletes projects', async () => {
    const made = await client.createProject({
      projectName: 'first',
      description: 'about',
      metadata: { team: 'a' },
    });
    expect(made).toMatchObject({ name: 'first', description: 'about', tenant_id: acme.workspaceIds[0] });
    await expect(client.createProject({ projectName: 'first' })).rejects.toThrow(/409|already exists/i);
    const again = await client.createProject({ projectName: 'first', upsert: true, description: 'changed' });
    expect(again).toMatchObject({ id: made.id, description: 'changed', extra: { metadata: { team: 'a' } } });

    expect(await client.hasProject({ projectName: 'first' })).toBe(true);
    expect(await client.hasProject({ projectName: 'never' })).toBe(false);
    expect(await client.hasProject({ projectId: made.id })).toBe(true);
    expect(await client.hasProject({ projectId: randomUUID() }).catch(() => false)).toBe(false);

    const read = await client.readProject({ projectName: 'first', includeStats: true });
    expect(read).toMatchObject({ id: made.id, run_count: 0, latency_p50: null });
    expect((await client.readProject({ projectId: made.id })).name).toBe('first');
    await expect(client.readProject({ projectName: 'never' })).rejects.toThrow('not found');

    const changed = await client.updateProject(made.id, { name: 'renamed', endTime: '2026-01-02T03:04:05.000Z' });
    expect(changed).toMatchObject({ name: 'renamed', description: 'changed', end_time: '2026-01-02T03:04:05.000000Z' });

    await expect(client.deleteProject({ projectName: '' })).rejects.toThrow('not found');
    expect((await client.readProject({ projectId: made.id })).name).toBe('renamed');

    await client.createProject({ projectName: 'second', metadata: { team: 'b', size: 2 } });
    const listed = async (query: Parameters<typeof client.listProjects>[0]) => {
      const found: string[] = [];
      for await (const { name } of client.listProjects(query)) found.push(name ?? '');
      return found;
    };
    expect(await listed({})).toEqual(['second', 'renamed']);
    expect(await listed({ name: '' })).toEqual(['second', 'renamed']);
    expect(await listed({ nameContains: 'SEC', referenceFree: true })).toEqual(['second']);
    expect(await listed({ metadata: { team: 'a' }, includeStats: false })).toEqual(['renamed']);
    expect(await listed({ projectIds: [made.id] })).toEqual(['renamed']);

    await client.deleteProject({ projectName: 'renamed' });
    expect(await client.hasProject({ projectName: 'renamed' })).toBe(false);
    expect(api.deletions).toContainEqual({ workspaceId: acme.workspaceIds[0], projectId: made.id });
  });

  it('keeps the properties of an experiment', async () => {
    const experiment = { num_examples: 3, num_repetitions: 2, evaluator_keys: ['correct', 'brief'] };
    const made = await create(experiment);
    expect(made).toMatchObject(experiment);
    expect((await ask('GET', `/sessions/${made.id}`)).body).toMatchObject(experiment);
    expect((await ask('GET', `/sessions?name=${made.name}`)).body).toMatchObject([experiment]);
    // A stock client closes an experiment with an update that contains none of these properties.
    const closed = await ask('PATCH', `/sessions/${made.id}`, { end_time: '2026-01-02T03:04:05Z', name: null });
    expect(closed.body).toMatchObject(experiment);
    const again = await ask('POST', '/sessions?upsert=true', {
      name: made.name,
      num_examples: 4,
      evaluator_keys: null,
    });
    expect(again.body).toMatchObject({ ...experiment, num_examples: 4 });
    expect(await create()).toMatchObject({ num_examples: null, num_repetitions: null, evaluator_keys: null });
  });

  it('reads more than one page of projects', async () => {
    const { adminKey } = await addOrganization(api.database, 'many');
    const payload = (name: string) => ({ method: 'POST', url: '/sessions', payload: { name } }) as const;
    for (let at = 0; at < 101; at++) {
      await api.server.inject({ ...payload(`p${at}`), headers: { 'x-api-key': adminKey } });
    }
    const many = await openClient(api, adminKey);
    const found = new Set<string>();
    for await (const { id } of many.listProjects()) found.add(id);
    expect(found.size).toBe(101);
  });
});

describe('POST /sessions', () => {
  it.each([
    ['no name', {}, 422],
    ['an empty name', { name: '' }, 422],
    ['a name of 513 characters', { name: 'x'.repeat(513) }, 422],
    ['a name with NUL', { name: 'a\0' }, 422],
    ['a lone surrogate', '{"name":"\\ud800"}', 422],
    ['SQL', { name: "'; DROP TABLE projects; --" }, 200],
    ['a malformed id', { name: 'id', id: 'x' }, 422],
    ['a date that does not exist', { name: 'day', start_time: '2026-02-30T00:00:00Z' }, 422],
    ['a time without zone', { name: 'zone', start_time: '2026-02-03T04:05:06.123456' }, 200],
    ['an unknown tier', { name: 'tier', trace_tier: 'forever' }, 422],
    ['an unknown tag value', { name: 'tags', tag_value_ids: [randomUUID()] }, 404],
    ['no tags', { name: 'no tags', tag_value_ids: [], evaluator_keys: null }, 200],
    ['extra that is not an object', { name: 'extra', extra: [1] }, 422],
  ])('%s', async (_, payload, status) => {
    expect((await ask('POST', '/sessions', payload)).status).toBe(status);
  });

  it('keeps times to the microsecond, and reads times without zone as UTC', async () => {
    const { start_time } = await create({ start_time: '2026-02-03T04:05:06.123456' });
    expect(start_time).toBe('2026-02-03T04:05:06.123456Z');
    expect((await create({ start_time: '2026-02-03T04:05:06+02:00' })).start_time).toBe('2026-02-03T02:05:06.000000Z');
  });

  it('rejects times that Postgres would round to the year 10000', async () => {
    for (const time of ['9999-12-31T23:59:59.9999995Z', '9999-12-31T22:59:59.999999999-01:00']) {
      expect((await ask('POST', '/sessions', { name: randomUUID(), start_time: time })).status).toBe(422);
    }
    const { start_time } = await create({ start_time: '9999-12-31T23:59:59.999999499Z' });
    expect(start_time).toBe('9999-12-31T23:59:59.999999Z');
  });

  it('returns extra unchanged, whatever it contains', async () => {
    const text =
      '{"__proto__":{"polluted":1},"nul":"\\u0000","half":"\\ud800","deep":[[{}]],"metadata":{"nul":"\\u0000","a":1}}';
    const made = await ask('POST', '/sessions', `{"name":"odd extra","extra":${text}}`);
    expect(made.status).toBe(200);
    expect(JSON.stringify(made.body.extra)).toBe(text);
    expect(JSON.stringify((await ask('GET', `/sessions/${made.body.id}`)).body.extra)).toBe(text);
    expect(await names(`metadata=${encodeURIComponent('{"a":1}')}`)).toContain('odd extra');
    expect(await names(`metadata=${encodeURIComponent('{"nul":"\\u0000"}')}`)).toContain('odd extra');
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  it('accepts nesting up to the limit and rejects more', async () => {
    const nested = (depth: number) =>
      `{"name":"${randomUUID()}","extra":{"a":${'['.repeat(depth)}${']'.repeat(depth)}}}`;
    expect((await ask('POST', '/sessions', nested(maxParsedDepth - 2))).status).toBe(200);
    expect((await ask('POST', '/sessions', nested(maxParsedDepth))).body).toMatchObject({ code: 'TOO_DEEP' });
  });

  it('rejects an id that is in use, also with upsert by name', async () => {
    const { id } = await create();
    expect((await ask('POST', '/sessions', { name: randomUUID(), id })).status).toBe(409);
    expect((await ask('POST', '/sessions?upsert=True', { name: randomUUID(), id })).status).toBe(409);
  });

  it('creates one project for concurrent upserts', async () => {
    const name = randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => ask('POST', '/sessions?upsert=true', { name, description: 'd' })),
    );
    expect(new Set(answers.map(({ status, body }) => `${status} ${body.id}`)).size).toBe(1);
  });
});

describe('GET /sessions', () => {
  it.each([
    ['limit=0', 422],
    ['limit=101', 422],
    ['limit=ten', 422],
    ['offset=-1', 422],
    ['id=x', 422],
    ['metadata=x', 422],
    ['metadata=[1]', 422],
    ['sort_by=moon', 422],
    ['sort_by=latency_p50', 200],
    ['filter=eq(name,"x")', 200],
    ['filter=no', 400],
    ['facets=true', 200],
    ['tag_value_id=x', 422],
    ['facets=False&use_approx_stats=false&filter=&name=&unknown=1', 200],
    ['include_stats=True', 200],
  ])('%s: %i', async (query, status) => {
    const answer = await ask('GET', `/sessions?${query}`);
    expect(answer.status).toBe(status);
    if (status === 400) expect(answer.body.detail).toContain(query.split('=')[0]);
  });

  it('sorts, limits and pages without gaps', async () => {
    const made: string[] = [];
    const start_time = '2020-01-01T00:00:00Z';
    for (const name of ['order b', 'order a', 'order c']) made.push((await create({ name, start_time })).name);
    expect(await names('name_contains=order&sort_by=name&sort_by_desc=false')).toEqual([...made].sort());
    expect(await names('name_contains=ORDER&sort_by=name')).toEqual([...made].sort().reverse());
    const pages = await Promise.all(
      [0, 1, 2, 3].map((offset) => names(`name_contains=order&limit=1&offset=${offset}`)),
    );
    expect(pages.flat().sort()).toEqual([...made].sort());
    expect(await names('name_contains=%25')).toEqual([]);
  });

  it('separates experiments from other projects', async () => {
    const dataset = randomUUID();
    const { name } = await create({ reference_dataset_id: dataset });
    expect(await names(`reference_dataset=${dataset}`)).toEqual([name]);
    expect(await names('reference_free=false')).toEqual([name]);
    expect(await names('reference_free=true')).not.toContain(name);
  });
});

describe('PATCH and DELETE', () => {
  it('rejects a name that is in use, and accepts its own', async () => {
    const [one, two] = [await create(), await create()];
    const taken = await ask('PATCH', `/sessions/${one.id}`, { name: two.name });
    expect([taken.status, taken.body.detail]).toEqual([409, 'A session with this name already exists.']);
    expect((await ask('PATCH', `/sessions/${one.id}`, { name: one.name })).status).toBe(200);
    expect((await ask('PATCH', `/sessions/${randomUUID()}`, { name: 'x' })).status).toBe(404);
    expect((await ask('PATCH', '/sessions/x', { name: 'x' })).status).toBe(422);
  });

  it('deletes once, frees the name, and deletes all or none of several', async () => {
    const [one, two, three] = [await create(), await create(), await create()];
    expect((await ask('DELETE', `/sessions/${one.id}`)).status).toBe(200);
    expect((await ask('DELETE', `/sessions/${one.id}`)).status).toBe(404);
    expect((await create({ name: one.name })).id).not.toBe(one.id);
    expect((await ask('DELETE', `/sessions?session_ids=${two.id}&session_ids=${one.id}`)).status).toBe(404);
    expect((await ask('GET', `/sessions/${two.id}`)).status).toBe(200);
    expect((await ask('DELETE', `/sessions?session_ids=${two.id}&session_ids=${three.id}`)).status).toBe(200);
    expect(await names(`id=${two.id}&id=${three.id}`)).toEqual([]);
    expect((await ask('DELETE', '/sessions')).status).toBe(422);
  });
});

describe('version 2', () => {
  const make = async (more: object, query = '') =>
    ask('POST', `/api/v2/sessions${query}`, { name: randomUUID(), type: 'PROJECT', ...more });

  it('creates and reads projects and experiments, with tiers and types in upper case', async () => {
    const made = await make({ trace_tier: 'SHORT_LIVED', extra: { metadata: { a: 1 } }, kicked_off_by: 'x' });
    expect(made).toMatchObject({ status: 200, body: { type: 'PROJECT', trace_tier: 'SHORT_LIVED', run_count: null } });
    expect((await ask('GET', `/sessions/${made.body.id}`)).body.trace_tier).toBe('shortlived');
    const { status, body } = await ask('GET', `/api/v2/sessions/${made.body.id}?include_stats=true`);
    expect([status, body]).toEqual([200, { ...made.body, ...body }]);
    expect(body).toMatchObject({ run_count: 0, extra: { metadata: { a: 1 } } });
    const reference_dataset_id = randomUUID();
    const experiment = await make({ type: 'EXPERIMENT', reference_dataset_id, num_examples: 3 });
    expect(experiment.body).toMatchObject({ type: 'EXPERIMENT', reference_dataset_id, num_examples: 3 });
    const again = { name: made.body.name, description: 'again' };
    expect((await make(again)).status).toBe(409);
    expect((await make(again, '?upsert=true')).body).toMatchObject({ id: made.body.id, description: 'again' });
  });

  it.each<[object, number, RegExp]>([
    [{ type: undefined }, 422, /type/],
    [{ type: 'AGENT' }, 400, /Agents are not built/],
    [{ type: 'EXPERIMENT' }, 400, /needs `reference_dataset_id`/],
    [{ reference_dataset_id: randomUUID() }, 400, /needs no `reference_dataset_id`/],
    [{ trace_tier: 'shortlived' }, 422, /trace_tier/],
  ])('refuses to create %j', async (more, status, detail) => {
    const answer = await make(more);
    expect(answer).toMatchObject({ status, body: { status, detail: expect.stringMatching(detail) } });
  });

  it('changes given fields, clears those that are null, and merges extra', async () => {
    const fields = { description: 'd', end_time: '2026-01-02T03:04:05Z', default_dataset_id: randomUUID() };
    const { id } = (await make({ ...fields, extra: { metadata: { a: 1 }, b: 2, c: 3 } })).body;
    const change = async (body: object) => (await ask('PATCH', `/api/v2/sessions/${id}`, body)).body;
    expect(await change({ extra: { b: null, d: 4 } })).toMatchObject({ description: 'd' });
    expect((await change({})).extra).toEqual({ metadata: { a: 1 }, c: 3, d: 4 });
    expect(await names(`id=${id}&metadata={"a":1}`)).toHaveLength(1);
    const cleared = await change({ description: null, end_time: null, default_dataset_id: null, extra: null });
    expect(cleared).toMatchObject({ description: null, end_time: null, default_dataset_id: null, extra: null });
    expect(await names(`id=${id}&metadata={"a":1}`)).toEqual([]);
    expect(await change({ name: 'renamed', trace_tier: 'LONG_LIVED' })).toMatchObject({
      name: 'renamed',
      trace_tier: 'LONG_LIVED',
    });
    for (const wrong of [{ name: null }, { name: '' }, { trace_tier: null }])
      expect((await change(wrong)).status).toBe(422);
    expect((await ask('PATCH', `/api/v2/sessions/${randomUUID()}`, {})).status).toBe(404);
  });
});
