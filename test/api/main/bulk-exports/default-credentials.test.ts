import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';

/** Destinations without credentials use those that the S3 client finds. The object store here checks no signatures. */

const objects = new Map<string, Buffer>();
const signedBy = new Set<string>();
let store: Server;
beforeAll(async () => {
  store = createServer(async (request, response) => {
    const { method, url = '', headers } = request;
    signedBy.add(/Credential=([^/]+)/.exec(headers.authorization ?? '')?.[1] ?? 'nobody');
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const path = url.split('?')[0] ?? '';
    if (method === 'PUT') objects.set(path, Buffer.concat(chunks));
    response.writeHead(200, { etag: '"etag"' }).end(method === 'GET' ? objects.get(path) : undefined);
  }).listen(0, '127.0.0.1');
  await once(store, 'listening');
  vi.stubEnv('AWS_ACCESS_KEY_ID', 'AKIADEFAULT');
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'secret of this machine');
});
afterAll(() => {
  vi.unstubAllEnvs();
  store?.close();
});

async function create(config: Parameters<typeof startApi>[0]): Promise<{ status: number; body: unknown }> {
  const api: ApiUnderTest = await startApi(config);
  try {
    const { workspaceKeys } = await addOrganization(api.database, 'acme');
    return await api.ask(workspaceKeys[0], 'POST', '/bulk-exports/destinations', {
      destination_type: 's3',
      display_name: 'lake',
      config: {
        bucket_name: 'lake',
        prefix: 'x',
        endpoint_url: `http://127.0.0.1:${(store.address() as AddressInfo).port}`,
      },
    });
  } finally {
    await api.close();
  }
}

// The address is private; all other settings are the defaults.
const privateEndpointConfig = { allowPrivateEndpoints: true };

it('creates a destination without credentials under default settings', async () => {
  expect(await create({ config: privateEndpointConfig })).toMatchObject({
    status: 200,
    body: { credentials_keys: [] },
  });
  expect([...signedBy]).toEqual(['AKIADEFAULT']);
  expect(objects.size).toBeGreaterThan(0);
});

it('rejects it if the operator forbids default credentials', async () => {
  signedBy.clear();
  expect(await create({ config: { ...privateEndpointConfig, allowDefaultCredentials: false } })).toMatchObject({
    status: 400,
    body: { detail: expect.stringContaining('needs credentials') },
  });
  expect([...signedBy]).toEqual([]);
});
