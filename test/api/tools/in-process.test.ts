import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sendInProcess } from '../../../api/tools/in-process.ts';
import { BodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';

const text = `"quoted"\r\n\r\n${'ä😀'.repeat(20_000)}`;
/** In parts whose ends are within characters. */
const parts = Buffer.from(text)
  .toString('latin1')
  .match(/[\s\S]{1,997}/g)
  ?.map((part) => Buffer.from(part, 'latin1')) as Buffer[];

const routes: Record<string, (request: FastifyRequest, reply: FastifyReply) => unknown> = {
  '/text': () => text,
  '/empty-text': () => '',
  '/bytes': () => Buffer.from(text),
  '/stream': () => Readable.from(parts),
  '/nothing': (_request, reply) => reply.code(204).send(),
  '/json': () => ({ text }),
  '/error': (_request, reply) => reply.code(418).send({ detail: 'no' }),
  '/request': ({ method, url, headers, body, ip, host }) => ({
    method,
    url,
    type: headers['content-type'],
    body,
    ip,
    host,
  }),
};

const server = fastify({ forceCloseConnections: true });
let responses = 0;
server.addHook('onResponse', async () => {
  responses += 1;
});
for (const [url, handler] of Object.entries(routes)) server.route({ method: ['GET', 'POST'], url, handler });
const largeText = 'x'.repeat(3_000_000);
server.get('/large', () => largeText);
server.get('/destroyed', (_request, reply) => void reply.raw.destroy());
let generatedParts = 0;
server.get('/endless', (_request, reply) =>
  reply.send(
    Readable.from(
      (async function* () {
        for (;;) {
          await setImmediate();
          generatedParts += 1;
          yield text;
        }
      })(),
    ),
  ),
);
server.get('/destroyed-within', (_request, reply) =>
  reply.send(Readable.from([text, text]).once('data', () => reply.raw.destroy())),
);

let address = '';
beforeAll(async () => {
  address = await server.listen({ host: '127.0.0.1', port: 0 });
});
afterAll(() => server.close());

function send(method: 'GET' | 'POST', url: string, body?: string) {
  const headers = { 'x-api-key': 'key', ...(body !== undefined && { 'content-type': 'application/json' }) };
  const { signal } = new AbortController();
  const limits = { maxResponseBytes: 1_000_000, budget: new BodyBudget(1_000_000) };
  const sendToServer = sendInProcess(server, new URL(address).host, limits);
  return sendToServer({ method, url, headers, signal, ...(body && { body }) });
}

describe('a request within the process', () => {
  it.each([
    ...Object.keys(routes).map((url) => ['GET', url] as const),
    ['GET', '/request?text=%C3%A4&list=1&list=2'],
    ['GET', '/missing'],
    ['POST', '/request', JSON.stringify({ text })],
    ['POST', '/request', '{'],
  ] as const)('%s %s gets the response of a request over HTTP', async (method, url, body?: string) => {
    const init = { method, ...(body && { body, headers: { 'content-type': 'application/json' } }) };
    const expected = await fetch(address + url, init);
    expect(await send(method, url, body)).toEqual({ status: expected.status, text: await expected.text() });
  });

  it('is seen by the server as complete', async () => {
    const before = responses;
    await Promise.all(Array.from({ length: 20 }, () => send('GET', '/stream')));
    await expect.poll(() => responses).toBe(before + 20);
  });

  it.each(['/destroyed', '/destroyed-within'])('fails if its response is not complete: %s', async (url) => {
    await expect(send('GET', url)).rejects.toThrow('Premature close');
  });

  it('fails if its response is too large, which the server then stops sending', async () => {
    await expect(send('GET', '/endless')).rejects.toMatchObject({ code: 'TOOL_ANSWER_TOO_LARGE' });
    const before = generatedParts;
    await send('GET', '/stream');
    expect([before < 100, generatedParts - before]).toEqual([true, 0]);
  });

  it('counts a large response until its call ends, whatever other organisations need', async () => {
    const budget = new BodyBudget(10_000_000);
    const sendToServer = sendInProcess(server, new URL(address).host, { maxResponseBytes: 4_000_000, budget });
    const call = new AbortController();
    const read = () =>
      sendToServer({ method: 'GET', url: '/large', headers: {}, signal: call.signal }).then(({ text }) => text.length);
    // Of each page, at most half of the budget counts.
    expect([await read(), await read()]).toEqual([largeText.length, largeText.length]);
    await expect(read()).rejects.toMatchObject({ code: 'OVERLOADED' });
    const other = budget.open('other', () => undefined);
    other.take(2_000_000);
    expect(() => other.take(2_000_000)).toThrow(expect.objectContaining({ code: 'OVERLOADED' }));
    expect(budget.exceedsHalf('')).toBe(true);
    call.abort();
    expect(budget.exceedsHalf('')).toBe(false);
    other.take(8_000_000);
    other.close();
    await expect(read()).rejects.toThrow('aborted');
  });
});
