/** Names that the main API does not know: they are ignored and named in the response, so that newer clients keep working. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { forSuite } from '../../for-suite.ts';
import { addOrganization, startApi } from '../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

async function ask(method: (typeof operations)[number]['method'], url: string, payload?: object) {
  const headers = { 'x-api-key': acme.adminKey };
  const answer = await api.server.inject({ method, url, headers, ...(payload && { payload }) });
  return { status: answer.statusCode, ignored: answer.headers['x-ignored-fields'], body: answer.body };
}

it.each(operations.map(({ operationId, ...rest }) => [operationId, rest] as const))(
  'a parameter and a field, in the response of %s',
  async (_, { method, path, mount, rawBody, schema }) => {
    const url = `${mount === 'root' ? '' : '/api/v1'}${path.replace(/:\w+/g, randomUUID())}?surprise=1&again=`;
    const parsesBody = method !== 'GET' && !rawBody;
    const isList = (schema.body as { type?: string } | undefined)?.type === 'array';
    const body = isList ? [{ field: 1 }] : { field: 1 };
    const { ignored } = await ask(method, url, parsesBody ? body : undefined);
    expect(ignored).toBe(parsesBody ? 'surprise, again, field' : 'surprise, again');
  },
);

it.each<[string, string, object, string | undefined]>([
  ['a misspelt field', '/runs/query', { projects: [randomUUID()], limits: 1 }, 'projects, limits'],
  [
    'fields that clients send without a value',
    '/runs/query',
    { filter: null, search_filter: '', select: null },
    undefined,
  ],
  ['free-form fields', '/sessions', { name: randomUUID(), extra: { surprise: { surprise: 1 } } }, undefined],
])('%s: POST %s', async (_name, url, body, ignored) => {
  expect(await ask('POST', url, body)).toMatchObject({ status: 200, ignored });
});

// Ignoring a filter would return what the client excluded.
it.each<[(typeof operations)[number]['method'], string, object?]>([
  ['POST', '/v2/runs/query', { sem_filter: 'rude' }],
  ['POST', '/v2/traces/query', { project_id: randomUUID(), sem_filter: 'rude' }],
  ['POST', '/v2/threads/query', { project_id: randomUUID(), sem_filter: 'rude' }],
  ['POST', '/v2/threads/stats', { project_id: randomUUID(), stride: { amount: 1, unit: 'HOUR' } }],
  ['GET', `/v1/platform/annotation-queues/${randomUUID()}/items?status=archived&agreement=disagreed`],
  ['GET', `/v1/platform/annotation-queues/${randomUUID()}/items/count?status=archived&has_unresolved_keys=false`],
  ['GET', `/v1/platform/evaluators?agent_id=${randomUUID()}`],
  ['GET', '/workspaces/current/tags?resource_type=prompt'],
])('but refuses filters of stock clients that are not built: %s %s', async (method, url, body) => {
  expect(await ask(method, url, body)).toMatchObject({ status: 400, body: expect.stringContaining('NOT_SUPPORTED') });
});

it('a field of a nested object, also of a refused request', async () => {
  const config = { bucket_name: 'bucket', buckets: 1, s3_additional_kwargs: { free: 1 } };
  const asked = {
    display_name: 'a/b',
    config,
    credentials: { access_key_id: 'a', secret_access_key: 'b', token: 'c' },
  };
  const answer = await ask('POST', '/bulk-exports/destinations', asked);
  expect(answer).toMatchObject({
    status: 422,
    ignored: 'config.buckets, credentials.token',
  });
});

it('not parameters that clients send without a value', async () => {
  expect(await ask('GET', '/sessions?filter=&name=&facets=false')).toMatchObject({ status: 200, ignored: undefined });
});
