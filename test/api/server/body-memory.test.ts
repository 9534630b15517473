import { request as sendRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { afterEach, expect, it } from 'vitest';
import { buildServer } from '../../../api/server/build-server.ts';
import { defineOperation, RawResponse } from '../../../api/server/operation.ts';
import { defineLargeJson } from '../../../api/server/request-body.ts';
import type { Services } from '../../../api/server/services.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { getBodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import type { WorkspaceCaller } from '../../../pipelines/tenants/caller.ts';
import { logger } from '../../silent-logger.ts';

let server: FastifyInstance | undefined;
afterEach(() => server?.close());

type Handler = (input: {
  readonly body: { readonly values: readonly object[] };
  readonly request: FastifyRequest;
}) => Promise<{ count: number } | RawResponse>;

const config = { ...loadConfig({}).config, maxCollectingBytes: 1024 ** 2 };

/**
 * Starts a server with a budget of 1 MB for bodies, and one operation. By default, its handler does not end before
 * `releaseAll`.
 */
async function start(handler?: Handler) {
  const waiting: (() => void)[] = [];
  const requests: FastifyRequest[] = [];
  const wait: Handler = async ({ body, request }) => {
    requests.push(request);
    await new Promise<void>((resolve) => waiting.push(resolve));
    return { count: body.values.length };
  };
  const operation = defineOperation({
    operationId: 'hold',
    method: 'POST',
    path: '/hold',
    summary: 'test',
    access: { public: true, tenantScope: 'none' },
    schema: {
      body: Type.Object({ values: Type.Array(Type.Object({})) }),
      response: { 200: Type.Object({ count: Type.Integer() }) },
    },
    handler: handler ?? wait,
  });
  const services = { authenticator: {} } as Services;
  server = await buildServer({
    config,
    services,
    logger,
    operations: [{ ...operation, tag: 'test' }],
  });
  await server.listen({ port: 0, host: '127.0.0.1' });
  const { port } = server.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/api/v1/hold`;
  const send = (values: number, signal: AbortSignal | null = null) =>
    fetch(url, {
      signal,
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ values: Array.from({ length: values }, () => ({})) }),
    });
  const releaseAll = () => {
    for (const resolve of waiting.splice(0)) resolve();
  };
  return { send, releaseAll, waiting, requests, url, budget: getBodyBudget(config) };
}

it('refuses bodies whose values would need more memory than there is, until requests have ended', async () => {
  const { send, releaseAll, waiting } = await start();
  const first = send(3_000);
  await expect.poll(() => waiting.length).toBe(1);
  const refused = await send(3_000);
  expect(refused.status).toBe(503);
  expect(refused.headers.get('retry-after')).toBe('1');
  expect(await refused.json()).toMatchObject({ code: 'OVERLOADED' });
  releaseAll();
  expect(await (await first).json()).toEqual({ count: 3_000 });
  const again = send(3_000);
  await expect.poll(() => waiting.length).toBe(1);
  releaseAll();
  expect((await again).status).toBe(200);
});

it('the values of a large JSON body count until they are used', async () => {
  const json = defineLargeJson(Type.Object({ values: Type.Array(Type.Object({})) }), 1024 ** 2);
  const read = (values: number, work: () => Promise<void>) => {
    const raw = Readable.from([Buffer.from(`{"values":[${Array(values).fill('{}').join()}]}`)]);
    const request = { raw, headers: {} } as FastifyRequest;
    return json.read({ request, caller: { organizationId: 'acme' } as WorkspaceCaller }, { config } as Services, work);
  };
  let release = () => {};
  const first = read(3_000, () => new Promise((resolve) => (release = resolve)));
  await expect.poll(() => read(3_000, async () => {}).catch(({ code }) => code)).toBe('OVERLOADED');
  release();
  await first;
  await read(3_000, async () => {});
});

it('holds the memory of a body until its handler ends, also if the client disconnects', async () => {
  const { send, releaseAll, waiting, requests } = await start();
  const client = new AbortController();
  const sent = send(3_000, client.signal).catch((error: unknown) => error);
  await expect.poll(() => waiting.length).toBe(1);
  client.abort();
  await sent;
  await expect.poll(() => requests[0]?.disconnected.aborted).toBe(true);
  expect((await send(3_000)).status).toBe(503);
  releaseAll();
  const again = send(3_000);
  await expect.poll(() => waiting.length).toBe(1);
  releaseAll();
  expect((await again).status).toBe(200);
});

it('ends bodies of requests without a key that do not arrive if an organisation needs their memory', async () => {
  const { url, budget } = await start();
  const withheld = sendRequest(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': 1_000_000 },
  });
  const status = new Promise((resolve, reject) => {
    withheld.on('response', ({ statusCode }) => resolve(statusCode)).on('error', reject);
  });
  withheld.write(' '.repeat(900_000));
  const share = budget.open('an organisation', () => undefined);
  // The bytes have arrived when half of the budget is exceeded.
  await expect.poll(() => budget.exceedsHalf('')).toBe(true);
  await expect
    .poll(() => {
      share.take(1);
      share.take(300_000);
      share.release(300_001);
      return budget.exceedsHalf('');
    })
    .toBe(false);
  expect(await status).toBe(503);
  withheld.destroy();
});

it('releases the memory of a body whose request is refused', async () => {
  const { url, send, releaseAll, waiting } = await start();
  const body = `{"values": [1${', {}'.repeat(3_000)}]}`;
  for (let round = 0; round < 3; round += 1) {
    const refused = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    expect(refused.status).toBe(422);
    await refused.text();
  }
  const sent = send(3_000);
  await expect.poll(() => waiting.length).toBe(1);
  releaseAll();
  expect((await sent).status).toBe(200);
});

it('does not keep the body while a response is streamed', async () => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const stream = new PassThrough();
  let values: WeakRef<object> | undefined;
  const { send } = await start(async ({ body }) => {
    values = new WeakRef(body.values);
    return new RawResponse({ body: stream });
  });
  stream.write('first');
  const { body } = await send(1);
  await expect
    .poll(() => {
      collectGarbage();
      return values?.deref();
    })
    .toBeUndefined();
  stream.end();
  await body?.cancel();
});

it('ends a streamed response that its client does not read if an organisation needs its memory', async () => {
  const stream = new PassThrough();
  const { send, budget } = await start(async ({ request }) => {
    for (let chunk = 0; chunk < 2; chunk++) request.responseMemory.reserve(0, 400_000);
    return new RawResponse({ body: stream });
  });
  stream.write('first');
  const { body } = await send(1);
  const reader = body!.getReader();
  expect(Buffer.from((await reader.read()).value!).toString()).toBe('first');
  const other = budget.open('other', () => undefined);
  other.take(400_000);
  await expect(reader.read()).rejects.toThrow();
  other.close();
});

it('releases the memory of a body whose handler throws', async () => {
  const { send } = await start(() => {
    throw runlakeError('BAD_REQUEST', { reason: 'test' });
  });
  for (let round = 0; round < 3; round += 1) expect((await send(3_000)).status).toBe(400);
});
