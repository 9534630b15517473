/**
 * Lists of records that may be large: a page that is too large for one response is refused before it is loaded into
 * memory.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ApiUnderTest, addOrganization, startApi } from '../start-api.ts';

let api: ApiUnderTest;
let key: string;

beforeAll(async () => {
  api = await startApi();
  key = (await addOrganization(api.database, 'acme')).adminKey;
});
afterAll(() => api?.close());

const name = () => `n${randomUUID()}`;
const evaluator = () => ({ name: name(), type: 'code', code_evaluator: { code: 'pass' } });
const repo = () => ({ repo_handle: name(), is_public: false });

it.each([
  ['/annotation-queues', 'annotation_queues', 'metadata', () => ({ name: name() })],
  ['/v1/platform/evaluators', 'evaluators', 'definition', evaluator],
  ['/datasets', 'datasets', 'metadata', () => ({ name: name() })],
  ['/repos', 'repos', 'readme', repo],
  ['/sessions', 'projects', 'extra', () => ({ name: name() })],
])('%s', async (url, table, column, create) => {
  for (let made = 0; made < 3; made++) expect((await api.ask(key, 'POST', url, create())).status).toBeLessThan(300);
  // Three records of 30 MB each; a response has at most 64 MiB.
  await api.database.execute(`UPDATE ${table} SET ${column} = '{"big":"' || repeat('x', 30000000) || '"}'`);
  const list = (query: string) => api.ask(key, 'GET', `${url}?${query}`);
  expect(await list('limit=3')).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
  const { status, body } = await list('limit=1');
  expect([status, JSON.stringify(body).length > 30_000_000]).toEqual([200, true]);
});
