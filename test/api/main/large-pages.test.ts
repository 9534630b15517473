/**
 * Lists of records that may be large: a page that is too large for one response is refused before it is loaded into
 * memory.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { getBodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { type ApiUnderTest, addOrganization, startApi } from '../start-api.ts';

let api: ApiUnderTest;
let key: string;
let organizationId: string;

beforeAll(async () => {
  api = await startApi();
  ({ adminKey: key, id: organizationId } = await addOrganization(api.database, 'acme'));
});
afterAll(() => api?.close());

const name = () => `n${randomUUID()}`;
const evaluator = () => ({ name: name(), type: 'code', code_evaluator: { code: 'pass' } });
const repo = () => ({ repo_handle: name(), is_public: false });

const lists: [string, string, string, () => object][] = [
  ['/annotation-queues', 'annotation_queues', 'metadata', () => ({ name: name() })],
  ['/v1/platform/evaluators', 'evaluators', 'definition', evaluator],
  ['/datasets', 'datasets', 'metadata', () => ({ name: name() })],
  ['/repos', 'repos', 'readme', repo],
  ['/sessions', 'projects', 'extra', () => ({ name: name() })],
];

it.each(lists)('%s', async (url, table, column, create) => {
  for (let made = 0; made < 3; made++) expect((await api.ask(key, 'POST', url, create())).status).toBeLessThan(300);
  // Three records of 30 MB each; a response has at most 64 MiB.
  await api.database.execute(`UPDATE ${table} SET ${column} = '{"big":"' || repeat('x', 30000000) || '"}'`);
  const list = (query: string) => api.ask(key, 'GET', `${url}?${query}`);
  expect(await list('limit=3')).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
  const { status, body } = await list('limit=1');
  expect([status, JSON.stringify(body).length > 30_000_000]).toEqual([200, true]);
});

it.each(lists.filter(([url]) => url === '/datasets' || url === '/sessions'))(
  '%s with very many values',
  async (url, table, column, create) => {
    for (let made = 0; made < 2; made++) expect((await api.ask(key, 'POST', url, create())).status).toBeLessThan(300);
    // A page has at most 2,000,000 values.
    await api.database.execute(
      `UPDATE ${table} SET ${column} = jsonb_build_object('a', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 1100000)))`,
    );
    const list = (query: string) => api.ask(key, 'GET', `${url}?${query}`);
    expect(await list('limit=2')).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
    expect((await list('limit=1')).status).toBe(200);
  },
);

it('refuses a large page while there is no memory for it, and releases the memory of a page', async () => {
  await api.ask(key, 'POST', '/sessions', { name: name() });
  await api.database.execute(`UPDATE projects SET extra = '{"big":"' || repeat('x', 5000000) || '"}'`);
  const list = () => api.ask(key, 'GET', '/sessions?limit=1');
  const { maxCollectingBytes } = api.services.config;
  for (let round = 0; round < 2; round++) {
    const share = getBodyBudget(api.services.config).open(organizationId, () => undefined);
    share.take(maxCollectingBytes);
    expect(await list()).toMatchObject({ status: 503, body: { code: 'OVERLOADED' } });
    share.close();
    expect((await list()).status).toBe(200);
  }
  await api.database.execute('UPDATE projects SET extra = NULL');
});
