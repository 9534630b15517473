import { expect, test } from 'vitest';
import { getBodyBudget } from '../../../../pipelines/ingest/body/body-budget.ts';
import { attributes, request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { shareWire, Wire } from './wire.ts';

const config = { maxParts: 2, maxCollectingBytes: 10_000 };
const { api, wire } = shareWire({ config });

const json = 'application/json';
const protobuf = 'application/x-protobuf';

test.each<[string, string, string | Buffer, number, RegExp]>([
  [
    'more spans than a request may hold',
    json,
    request([span(), span(), span()]),
    413,
    /2 parts \(the limit of one request\)/,
  ],
  ['no JSON', json, '{', 422, /Invalid JSON/],
  ['no protobuf', protobuf, Buffer.from('0b0c', 'hex'), 422, /Invalid protobuf/],
  ['another type', 'text/plain', 'x', 415, /text\/plain/],
  ['more than may be collected', json, 'x'.repeat(20_000), 413, /half of RUNLAKE_MEMORY_BYTES/],
  [
    'more than may be collected, with a resource that both spans contain',
    json,
    request([span(), span()], { attributes: attributes({ large: 'x'.repeat(6_000) }) }),
    413,
    /half of RUNLAKE_MEMORY_BYTES/,
  ],
  ['more than may be collected, as protobuf', protobuf, Buffer.alloc(20_000), 413, /half of RUNLAKE_MEMORY_BYTES/],
])('responds to %s with google.rpc.Status and a request id', async (_name, contentType, body, status, words) => {
  const answer = await wire.send('POST', '/otel/v1/traces', body, { 'content-type': contentType });
  expect([answer.status, answer.text]).toEqual([status, expect.stringMatching(words)]);
  expect(answer.headers.get('content-type')).toBe(contentType === protobuf ? protobuf : json);
  if (contentType !== protobuf) expect(Object.keys(JSON.parse(answer.text))).toEqual(['message']);
  expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  expect(answer.headers.get('retry-after')).toBeNull();
});

test('responds with 503 to what exceeds the share of its organisation while another one uses the memory', async () => {
  const other = getBodyBudget(config).open('another', () => undefined);
  other.take(config.maxCollectingBytes);
  other.waitsForClient = false;
  const answer = await wire.send('POST', '/otel/v1/traces', 'x'.repeat(6_000), { 'content-type': json });
  other.close();
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '1']);
  expect(JSON.parse(answer.text)).toEqual({
    message: expect.stringContaining('request bodies, half of RUNLAKE_MEMORY_BYTES'),
  });
});

test.each([
  ['UTF-8, as curl and the collector send it', 'utf8', 'größe 東京'],
  ['Latin-1, as Python sends it', 'latin1', 'größe'],
] as const)('takes the project from a header in %s', async (_name, encoding, project) => {
  const startTimeUnixNano = String(BigInt(Date.now()) * 1_000_000n);
  const spanId = Buffer.from(encoding.padEnd(8)).toString('hex');
  const answer = await wire.send(
    'POST',
    '/otel/v1/traces',
    request([span({ spanId, startTimeUnixNano, endTimeUnixNano: startTimeUnixNano })]),
    {
      'content-type': json,
      'langsmith-project': Buffer.from(project, encoding).toString('latin1'),
    },
  );
  expect([answer.status, answer.text]).toEqual([200, '{}']);
  const { text } = await wire.send('GET', `/sessions?name=${encodeURIComponent(project)}`);
  expect((JSON.parse(text) as { name: string }[]).map(({ name }) => name)).toEqual([project]);
});

test('responds to a wrong key in the encoding of the request', async () => {
  const stranger = new Wire(api.server, 'rlk_wrong-wrong-wrong-wrong');
  const answer = await stranger.send('POST', '/otel/v1/traces', Buffer.alloc(0), { 'content-type': protobuf });
  expect(answer.status).toBe(401);
  expect(answer.text).toEqual(expect.stringContaining('The API key is not valid.'));
});
