/** Lists without pages, and the audit log: one tenant must not be able to fill the memory of the process with them. */
import { randomUUID } from 'node:crypto';
import { beforeEach, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { addOrganization, type OrganizationUnderTest, startApi } from '../start-api.ts';

const api = forSuite(() => startApi());
let acme: OrganizationUnderTest;
beforeEach(async () => {
  acme = await addOrganization(api.database, randomUUID());
});

type Method = 'GET' | 'POST';
const ask = (method: Method, path: string, payload?: object) => api.ask(acme.adminKey, method, path, payload);
/** A text that is estimated to have more than half of the values that a response may have. */
const large = `repeat('{', 2100000)`;

const addTagKey = async () =>
  (await ask('POST', '/workspaces/current/tag-keys', { key: randomUUID() })).body.id as string;
const addTagValue = async (keyId: string) =>
  (await ask('POST', `/workspaces/current/tag-keys/${keyId}/tag-values`, { value: randomUUID() })).body.id as string;
const addDeployment = () =>
  ask('POST', '/v2/deployments', {
    name: randomUUID(),
    source: 'internal_source',
    source_config: {},
    source_revision_config: {},
    secrets: [],
  });
const addProvider = () =>
  ask('POST', '/v2/auth/providers', {
    ...{ provider_id: randomUUID(), name: 'n', client_id: 'c', client_secret: 's' },
    ...{ auth_url: 'https://example.com/auth', token_url: 'https://example.com/token' },
  });

it.each<[path: string, create: () => Promise<unknown>, change: string]>([
  ['/api-key', () => ask('POST', '/api-key', {}), `UPDATE api_keys SET description = ${large}`],
  [
    '/orgs/current/service-keys',
    () => ask('POST', '/orgs/current/service-keys', {}),
    `UPDATE api_keys SET description = ${large}`,
  ],
  [
    '/orgs/current/members',
    () => ask('POST', '/orgs/current/members', { email: `${randomUUID()}@example.com` }),
    `UPDATE users SET full_name = ${large}`,
  ],
  ['/workspaces/current/tag-keys', addTagKey, `UPDATE tag_keys SET description = ${large}`],
  [
    '/workspaces/current/tags',
    async () => addTagValue(await addTagKey()),
    `UPDATE tag_values SET description = ${large}`,
  ],
  ['/v2/auth/providers', addProvider, `UPDATE oauth_providers SET auth_url = ${large}`],
  [
    '/v2/deployments',
    addDeployment,
    `UPDATE deployments SET source_config = json_build_object('listener_config', json_build_object('a', ${large}))`,
  ],
])('%s refuses to respond with very many values', async (path, create, change) => {
  for (let made = 0; made < 2; made += 1) await create();
  expect((await ask('GET', path)).status).toBe(200);
  await api.database.execute(change);
  expect(await ask('GET', path)).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
});

it('responses with the tags of resources repeat a tag for each resource only up to the limit', async () => {
  const valueId = await addTagValue(await addTagKey());
  await api.database.execute(`UPDATE tag_values SET description = repeat('x', 3000000) WHERE id = $1`, [valueId]);
  const projects: string[] = [];
  for (let made = 0; made < 25; made += 1) {
    projects.push((await ask('POST', '/sessions', { name: randomUUID(), tag_value_ids: [valueId] })).body.id);
  }
  const read = (ids: readonly string[]) =>
    ask(
      'POST',
      '/workspaces/current/tags/resources',
      ids.map((id) => ({ resource_type: 'project', resource_id: id })),
    );
  expect(await read(projects)).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
  const { status, body } = await read(projects.slice(0, 2));
  expect([status, Object.keys(body)]).toEqual([200, projects.slice(0, 2)]);
});

it('a page of the audit log with large details ends early, and the next one continues', async () => {
  const isLarge = (row: { action: string }) => row.action === 'large.test';
  await api.database.execute(
    `INSERT INTO audit_logs (organization_id, actor_kind, action, details)
     SELECT $1, 'system', 'large.test', jsonb_build_object('number', number, 'text', repeat('x', 600000))
     FROM generate_series(1, 4) AS number`,
    [acme.id],
  );
  const numbers: number[] = [];
  let pages = 0;
  for (let cursor: string | null = ''; cursor !== null; pages += 1) {
    const query = new URLSearchParams({ limit: '1000', action: 'large', ...(cursor !== '' && { cursor }) });
    const { status, body } = await ask('GET', `/audit-logs?${query}`);
    expect([status, body.items.every(isLarge)]).toEqual([200, true]);
    expect(JSON.stringify(body).length).toBeLessThan(1_300_000);
    numbers.push(...body.items.map((row: { details: { number: number } }) => row.details.number));
    cursor = body.cursor;
  }
  expect([numbers, pages]).toEqual([[4, 3, 2, 1], 4]);
});
