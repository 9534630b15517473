/** Limits on the versions and tags of a dataset. */

import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';
import { createDataset } from './dataset-requests.ts';

const api = forSuite(() => startApi());

const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = (method: Parameters<ApiUnderTest['ask']>[1], url: string, body?: object) =>
  api.ask(acme.adminKey, method, url, body);

async function addExamples(dataset_id: string, number: number): Promise<string[]> {
  const items = Array.from({ length: number }, () => ({ id: randomUUID(), dataset_id, inputs: {} }));
  expect((await ask('POST', '/examples/bulk', items)).status).toBe(200);
  return items.map(({ id }) => id);
}

const full = { status: 422, body: { code: 'DATASET_FULL', remedy: expect.stringContaining('POST /datasets/clone') } };

it('a dataset with a million versions can be emptied, copied and deleted, but not changed', async () => {
  const dataset_id = await createDataset(api, acme.adminKey);
  const [first, second, third] = await addExamples(dataset_id, 3);
  await api.database.execute('UPDATE datasets SET version_count = 999999 WHERE id = $1', [dataset_id]);
  const change = (n: number) => ask('PATCH', `/examples/${first}`, { inputs: { n } });
  expect((await change(1)).status).toBe(200);
  expect(await change(2)).toMatchObject(full);
  expect(await ask('POST', '/examples', { dataset_id, inputs: {} })).toMatchObject(full);

  const target = await createDataset(api, acme.adminKey);
  const clone = { source_dataset_id: dataset_id, target_dataset_id: target };
  expect((await ask('POST', '/datasets/clone', clone)).status).toBe(200);
  await addExamples(target, 1);

  expect((await ask('DELETE', `/examples/${first}`)).status).toBe(200);
  const deletion = { example_ids: [second], hard_delete: true };
  expect((await ask('POST', '/v1/platform/datasets/examples/delete', deletion)).status).toBe(200);
  expect((await ask('GET', `/examples?dataset=${dataset_id}`)).body).toMatchObject([{ id: third }]);
  expect(await change(3)).toMatchObject({ status: 404 });
  expect((await ask('DELETE', `/datasets/${dataset_id}`)).status).toBe(200);
});

it('a dataset has at most 100,000 tags, also on one version, and they are found by a part', async () => {
  const dataset = await createDataset(api, acme.adminKey);
  const [example] = await addExamples(dataset, 1);
  await addExamples(dataset, 1);
  const [newest, oldest] = (await ask('GET', `/datasets/${dataset}/versions`)).body as { as_of: string }[];
  await api.database.execute(
    `INSERT INTO dataset_tags (dataset_id, tag, as_of)
     SELECT $1, 'git:commit:' || sha1, $2 FROM (SELECT md5(n::text) || left(md5(n::text), 8) AS sha1 FROM generate_series(2, 100000) AS n)`,
    [dataset, oldest!.as_of],
  );
  const tag = (tag: string) => ask('PUT', `/datasets/${dataset}/tags`, { as_of: 'latest', tag });
  expect((await tag('git:commit:last')).body).toMatchObject({ tags: ['git:commit:last', 'latest'] });
  expect(await tag('another')).toMatchObject(full);
  expect((await tag('git:commit:last')).status).toBe(200);

  const found = async (query: string) =>
    (await ask('GET', `/datasets/${dataset}/versions?${query}`)).body.map(({ as_of }: { as_of: string }) => as_of);
  expect(await found('search=COMMIT:LAST')).toEqual([newest!.as_of]);
  expect(await found('search=LATEST')).toEqual([newest!.as_of]);
  expect(await found('search=git')).toEqual([newest!.as_of, oldest!.as_of]);
  expect(await found('search=none')).toEqual([]);
  expect(await found(`example=${example}`)).toEqual([oldest!.as_of]);
});

it('the tags of a dataset have at most 16 MiB', async () => {
  const dataset = await createDataset(api, acme.adminKey);
  await addExamples(dataset, 1);
  await api.database.execute(
    `INSERT INTO dataset_tags (dataset_id, tag, as_of)
     SELECT $1, rpad(n::text, 512, '𝒯'), last_version FROM datasets, generate_series(100000, 108299) AS n WHERE id = $1`,
    [dataset],
  );
  const { status, body } = await ask('PUT', `/datasets/${dataset}/tags`, { as_of: 'latest', tag: 'another' });
  expect([status, body.code, body.remedy]).toEqual([422, 'DATASET_FULL', full.body.remedy]);
});
