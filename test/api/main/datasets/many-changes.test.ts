/** Changes of the splits and the metadata of very many examples. */

import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { measureLongestTurn } from '../../../infra/longest-turn.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const examples = 10_000;
const api = forSuite(() => startApi());
let key: string;
let dataset: string;
let ids: string[];

beforeAll(async () => {
  const { adminKey, workspaceIds } = await addOrganization(api.database, 'acme');
  key = adminKey;
  dataset = (await api.ask(key, 'POST', '/datasets', { name: 'large' })).body.id;
  const added = await api.database.query<{ id: string }>(
    `INSERT INTO examples (workspace_id, dataset_id, valid_from, id, created_at, inputs, metadata, searchable, attachments)
     SELECT $1, $2, now(), gen_random_uuid(), now(), '{}', made.metadata, made.metadata::jsonb, '{}'
     FROM generate_series(1, $3::int) AS n,
       LATERAL (SELECT json_build_object('n', n, 'text', repeat('a "quoted" text. ', 120))::text AS metadata) AS made
     RETURNING id`,
    [workspaceIds[0], dataset, examples],
  );
  ids = added.map(({ id }) => id);
});

const readMetadata = async (id: string | undefined) => (await api.ask(key, 'GET', `/examples/${id}`)).body.metadata;

it.each([
  [
    'a split',
    'PUT',
    () => `/datasets/${dataset}/splits`,
    () => ({ split_name: 'test', examples: ids }),
    200,
    { dataset_split: ['test'] },
  ],
  [
    'metadata',
    'PATCH',
    () => `/v1/platform/datasets/${dataset}/examples/metadata`,
    () => ({ example_ids: ids, operations: [{ key: 'm', operation: 'SET', value: 1 }] }),
    207,
    { m: 1 },
  ],
] as const)('%s of many examples do not block other requests', async (_, method, url, body, status, changed) => {
  const request = api.ask(key, method, url(), body());
  expect(await measureLongestTurn(request)).toBeLessThan(0.4);
  expect((await request).status).toBe(status);
  expect(await readMetadata(ids[0])).toMatchObject(changed);
  expect(await readMetadata(ids.at(-1))).toMatchObject({ n: expect.any(Number), text: expect.any(String), ...changed });
});

it('the maximum number of ids fits into one change of a split', async () => {
  const unknown = Array.from({ length: 100_000 }, () => randomUUID());
  const change = (ids: readonly string[]) =>
    api.ask(key, 'PUT', `/datasets/${dataset}/splits`, { split_name: 'test', examples: ids });
  expect((await change(unknown)).status).toBe(404);
  expect((await change([...unknown, randomUUID()])).status).toBe(422);
  expect((await change([...unknown, ...unknown])).status).toBe(413);
});
