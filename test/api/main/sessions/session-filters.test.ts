import { randomUUID } from 'node:crypto';
import { Client as NewClient } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** The parameter `filter` of lists of projects. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let ids: Record<string, string>;
const datasetId = randomUUID();

const hostile = `'; DROP TABLE projects; -- " \\ % _ $1 {x:String} \u{1f600}`;
const projects = {
  a: { name: 'alpha', description: 'Why é?', start_time: '2026-01-01T00:00:00Z', metadata: { team: 'x', level: 1 } },
  b: { name: 'beta', start_time: '2026-02-01T00:00:00Z', trace_tier: 'shortlived', metadata: { team: hostile } },
  c: {
    name: 'Gamma',
    start_time: '2026-03-01T00:00:00Z',
    reference_dataset_id: datasetId,
    metadata: { deep: { k: [2] } },
  },
  d: { name: hostile, start_time: '2026-04-01T00:00:00Z', end_time: '2026-04-02T00:00:00Z' },
};

const options = { autoBatchTracing: false, callerOptions: { maxRetries: 0 } };
const client = forSuite(() => openClient(api, acme.adminKey, options, NewClient));
beforeAll(async () => {
  ids = Object.fromEntries(Object.keys(projects).map((name) => [name, randomUUID()]));
  for (const [name, { metadata, ...project }] of Object.entries<Record<string, unknown>>(projects)) {
    const payload = { id: ids[name], ...project, ...(metadata ? { extra: { metadata } } : {}) };
    expect((await api.ask(acme.adminKey, 'POST', '/sessions', payload)).status).toBe(200);
  }
});

const list = (filter: string, key = acme.adminKey, more = '') =>
  api.ask(key, 'GET', `/sessions?filter=${encodeURIComponent(filter)}${more}`);

const shorten = (found: readonly { readonly id: string }[]) =>
  found
    .map(({ id }) => Object.keys(ids).find((name) => ids[name] === id) ?? '?')
    .sort()
    .join('');

async function find(filter: string): Promise<string> {
  const { status, body } = await list(filter);
  expect([status, body.detail]).toEqual([200, undefined]);
  return shorten(body as unknown as { id: string }[]);
}

describe('a filter finds', () => {
  it.each([
    [`eq(name, "alpha")`, 'a'],
    [`eq(name, 'my-project')`, ''],
    [`eq(name, "gamma")`, ''],
    [`in(name, ["alpha", "beta", "root"])`, 'ab'],
    [`like(name, "%a")`, 'abc'],
    [`search(name, "ALPH")`, 'a'],
    [`search("why É")`, 'a'],
    [`search("deep")`, 'c'],
    [`search(metadata, "team")`, 'ab'],
    [`eq(description, null)`, 'bcd'],
    [`neq(description, "Why é?")`, 'bcd'],
    [`and(gt(start_time, "2026-01-01T00:00:00Z"), lt(start_time, "2026-03-15T00:00:00Z"))`, 'bc'],
    [`neq(end_time, null)`, 'd'],
    [`gte(end_time, "2026-04-02T00:00:00Z")`, 'd'],
    [`eq(trace_tier, "shortlived")`, 'b'],
    [`eq(reference_dataset_id, null)`, 'abd'],
    [`eq(reference_dataset_id, "${datasetId.toUpperCase()}")`, 'c'],
    [`has(metadata, '{"team": "x"}')`, 'a'],
    [`has(metadata, ${JSON.stringify(JSON.stringify({ team: hostile }))})`, 'b'],
    [`exists(metadata, "deep.k")`, 'c'],
    [`and(eq(metadata_key, "team"), eq(metadata_value, "x"))`, 'a'],
    [`and(eq(metadata_key, "team"), eq(metadata_value, 1))`, ''],
    [`neq(metadata_key, "team")`, 'cd'],
    [`or(eq(name, "alpha"), and(eq(metadata_key, "deep.k"), gt(metadata_value, 1)))`, 'ac'],
    [`eq(name, ${JSON.stringify(hostile)})`, 'd'],
    [`eq(name, "\\u0000\\ud800")`, ''],
  ])('%s: %s', async (filter, expected) => {
    expect(await find(filter)).toBe(expected);
    const rest = [...'abcd'].filter((name) => !expected.includes(name)).join('');
    expect(await find(`not(${filter})`)).toBe(rest);
  });

  it('ids, also with the other parameters', async () => {
    expect(await find(`in(id, ["${ids.c}", "${ids.a?.toUpperCase()}"])`)).toBe('ac');
    const filter = 'lt(start_time, "2026-03-15T00:00:00Z")';
    const metadata = `&metadata=${encodeURIComponent('{"team":"x"}')}`;
    const both = await list(filter, acme.adminKey, `&name_contains=a&id=${ids.a}&id=${ids.d}${metadata}`);
    expect(shorten(both.body as unknown as { id: string }[])).toBe('a');
    const page = await list(filter, acme.adminKey, '&limit=1&offset=1&sort_by=last_run_start_time');
    expect(page.body).toHaveLength(1);
  });

  it('projects for the stock client by version 2', async () => {
    const found = [];
    for await (const project of client.sessions.listV2({ filter: `eq(name, 'beta')` })) found.push(project.name);
    expect(found).toEqual(['beta']);
  });

  it('none of another workspace', async () => {
    const other = await addOrganization(api.database, 'other');
    expect((await list(`or(eq(name, "alpha"), not(eq(name, "alpha")))`, other.adminKey)).body).toEqual([]);
  });
});

it.each([
  ['eq(', /Invalid filter at character 4: .*expected/],
  ['eq(namee, "x")', /character 4: unknown field `namee`, did you mean `name`/],
  ['has(tags, "x")', /character 5: unknown field `tags`, expected one of id, name/],
  ['eq(metadata_kye, "x")', /did you mean `metadata_key`/],
  ['search(id, "x")', /expected a field with text: name, description, metadata/],
  ['eq(id, "x")', /expected a UUID/],
  ['eq(trace_tier, "long")', /expected one of "longlived", "shortlived"/],
  ['gt(start_time, "noon")', /expected an ISO 8601/],
  ['gt(name, "x")', /expected an operator of `name`/],
])('refuses %s', async (filter, message) => {
  const { status, body } = await list(filter);
  expect([status, body.detail]).toEqual([400, expect.stringMatching(message)]);
});

describe('the version of a dataset', () => {
  it.each(['/sessions', '/v2/sessions'])('is compared as a time if it is one: GET %s', async (url) => {
    const reference_dataset_id = randomUUID();
    const add = async (dataset_version: string) => {
      const body = { name: randomUUID(), reference_dataset_id, extra: { metadata: { dataset_version } } };
      return (await api.ask(acme.adminKey, 'POST', '/sessions', body)).body.id as string;
    };
    const of = async (version: string) => {
      const query = `reference_dataset=${reference_dataset_id}&reference_dataset_id=${reference_dataset_id}`;
      const { body } = await api.ask(
        acme.adminKey,
        'GET',
        `${url}?${query}&dataset_version=${encodeURIComponent(version)}`,
      );
      return (body.items ?? body).map(({ id }: { id: string }) => id).sort();
    };
    const texts = ['2026-01-02T03:04:05.670Z', '2026-01-02T03:04:05.670000+00:00', '2026-01-02T03:04:05.67Z'];
    const same = [];
    for (const text of texts) same.push(await add(text));
    const whole = [await add('2026-01-02T03:04:05Z'), await add('2026-01-02T03:04:05.000Z')];
    const tagged = await add('latest');
    for (const text of [...texts, '2026-01-02T04:04:05.67+01:00']) expect(await of(text)).toEqual([...same].sort());
    expect(await of('2026-01-02T03:04:05+00:00')).toEqual(whole.sort());
    expect([await of('latest'), await of('late'), await of('2020-01-01T00:00:00Z')]).toEqual([[tagged], [], []]);
  });
});
