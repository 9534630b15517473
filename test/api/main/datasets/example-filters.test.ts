import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** The parameter `filter` of lists of examples. */

const api = forSuite(() => startApi());
let client: Client;
let key: string;
let datasetId: string;
let ids: Record<string, string>;
const sourceId = randomUUID();

const hostile = `'; DROP TABLE examples; -- " \\ % _ $1 {x:String} \u{1f600}`;
const examples = {
  a: { metadata: { foo: 'bar', level: 1, tenant_id: 't1' }, inputs: { q: 'Why é?' }, outputs: { r: 'because' } },
  b: { metadata: { foo: 'baz', level: '2', deep: { key: { x: true } } }, inputs: { q: 'how?' } },
  c: { metadata: { level: 10.5, list: ['red', 'green'], nothing: null }, inputs: { q: `"quoted" ${hostile}` } },
  d: { metadata: { foo: hostile, level: '1e99999999', 'dotted.key': 'v' }, inputs: { q: '\u0000\ud800' } },
};

beforeAll(async () => {
  const acme = await addOrganization(api.database, 'acme');
  key = acme.adminKey;
  client = await openClient(api, key, { autoBatchTracing: false, callerOptions: { maxRetries: 0 } });
  datasetId = (await client.createDataset(randomUUID())).id;
  ids = Object.fromEntries(Object.keys(examples).map((name) => [name, randomUUID()]));
  for (const [name, example] of Object.entries(examples)) {
    const source = name === 'b' ? { source_run_id: sourceId } : {};
    const payload = { id: ids[name], dataset_id: datasetId, ...example, ...source };
    expect((await api.ask(key, 'POST', '/examples', payload)).status).toBe(200);
  }
});

async function find(filter: string): Promise<string> {
  const found: string[] = [];
  for await (const { id } of client.listExamples({ datasetId, filter })) {
    found.push(Object.keys(ids).find((name) => ids[name] === id) ?? '?');
  }
  return found.sort().join('');
}

describe('a filter finds', () => {
  it.each([
    [`has(metadata, '{"foo": "bar"}')`, 'a'],
    [`has("metadata", '{"foo": "bar"}')`, 'a'],
    [`exists(metadata, "foo")`, 'abd'],
    [`and(not(has(metadata, '{"foo": "bar"}')), exists(metadata, "foo"))`, 'bd'],
    [`exists(metadata, "deep.key.x")`, 'b'],
    [`exists(metadata, "dotted.key")`, 'd'],
    [`exists(metadata, "nothing")`, 'c'],
    [`exists(metadata, "missing")`, ''],
    [`eq(metadata_key, "tenant_id")`, 'a'],
    [`neq(metadata_key, "foo")`, 'c'],
    [`and(eq(metadata_key, "foo"), eq(metadata_value, "baz"))`, 'b'],
    [`and(eq(metadata_key, "foo"), neq(metadata_value, "baz"))`, 'ad'],
    [`and(eq(metadata_key, "foo"), eq(metadata_value, 1))`, ''],
    [`and(eq(metadata_key, "foo"), and(eq(metadata_value, 1)))`, 'a'],
    [`neq(metadata_value, "t1")`, 'bcd'],
    [`and(neq(metadata_key, "foo"), neq(metadata_value, "t1"))`, 'c'],
    [`and(eq(metadata_key, "level"), gt(metadata_value, 1))`, 'bc'],
    [`and(eq(metadata_key, "level"), lte(metadata_value, 2))`, 'ab'],
    [`and(eq(metadata_key, "level"), in(metadata_value, [2, "1"]))`, 'ab'],
    [`in(metadata_key, ["deep.key.x", "list"])`, 'bc'],
    [`and(eq(metadata_key, "list"), eq(metadata_value, "green"))`, 'c'],
    [`and(eq(metadata_key, "deep.key.x"), eq(metadata_value, true))`, 'b'],
    [`and(eq(metadata_key, "dataset_split"), eq(metadata_value, "base"))`, 'abcd'],
    [`and(eq(metadata_key, "foo"), like(metadata_value, "ba%"))`, 'ab'],
    [`and(eq(metadata_key, "foo"), like(metadata_value, "ba_"))`, 'ab'],
    [`search("BECAUSE")`, 'a'],
    [`search(inputs, "because")`, ''],
    [`search(outputs, "because")`, 'a'],
    [`search("why é")`, 'a'],
    [`search(metadata, "tenant")`, 'a'],
    [`or(search("how"), eq(metadata_key, "list"))`, 'bc'],
    [`neq(source_run_id, null)`, 'b'],
    [`eq(source_run_id, null)`, 'acd'],
    [`eq(source_run_id, "${sourceId.toUpperCase()}")`, 'b'],
    [`neq(source_run_id, "${sourceId}")`, 'acd'],
    [`gt(created_at, "2020-01-01T00:00:00Z")`, 'abcd'],
    [`lt(modified_at, "2020-01-01T00:00:00Z")`, ''],
    [`not(or(exists(metadata, "foo"), eq(source_run_id, null)))`, ''],
  ])('%s: %s', async (filter, expected) => {
    expect(await find(filter)).toBe(expected);
    const rest = [...'abcd'].filter((name) => !expected.includes(name)).join('');
    expect(await find(`not(${filter})`)).toBe(rest);
  });

  it('ids, also those of a list', async () => {
    expect(await find(`eq(id, "${ids.c}")`)).toBe('c');
    expect(await find(`in(id, ["${ids.c}", "${ids.a?.toUpperCase()}", "${randomUUID()}"])`)).toBe('ac');
  });

  it.each([hostile, '\u0000', '\ud800', `"'`, '\\', '{}', '%'])('the text %j exactly', async (text) => {
    const written = JSON.stringify(text);
    expect(await find(`eq(metadata_value, ${written})`)).toBe(text === hostile ? 'd' : '');
    const found = await find(`search(inputs, ${written})`);
    expect(found).toBe(
      Object.entries(examples)
        .flatMap(([name, { inputs }]) => (inputs.q.includes(text) ? [name] : []))
        .join(''),
    );
  });
});

it('filters counts, other conditions and versions too', async () => {
  const filter = encodeURIComponent('exists(metadata, "foo")');
  const ask = async (url: string) => (await api.ask(key, 'GET', url)).body;
  expect(await ask(`/examples/count?dataset=${datasetId}&filter=${filter}`)).toBe(3);
  expect(await ask(`/examples/count?dataset=${datasetId}&filter=${filter}&metadata={"foo":"baz"}`)).toBe(1);
  expect(await ask(`/examples/count?dataset=${datasetId}&filter=${filter}&as_of=2020-01-01`)).toBe(0);
});

it.each([
  ['eq(', /expected/],
  ['eq(name, "x")', /unknown field `name`/],
  ['eq(metadata_kye, "x")', /did you mean `metadata_key`/],
  ['search(id, "x")', /expected a field with text: metadata, inputs, outputs/],
  ['eq(id, "x")', /expected a UUID/],
  ['has(metadata, "x")', /expected a JSON object/],
])('refuses %s', async (filter, message) => {
  const answer = await api.ask(key, 'GET', `/examples?dataset=${datasetId}&filter=${encodeURIComponent(filter)}`);
  expect([answer.status, answer.body.detail]).toEqual([400, expect.stringMatching(message)]);
});
