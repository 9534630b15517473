import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { until } from '../../../infra/until.ts';
import { addOrganization } from '../../start-api.ts';
import { buildPostParts, multipart, rootRun, shareWire, Wire } from './wire.ts';

/** Client of another organisation. */
let quiet: Wire;

const { api, wire } = shareWire({ config: { maxCollectingBytes: 60_000, maxPendingBytes: 2_000 } });
beforeAll(async () => {
  quiet = new Wire(api.server, (await addOrganization(api.database, 'quiet')).adminKey);
});
// The log is full while an event of the previous test is not stored.
beforeEach(() => api.settled());

const body = (bytes: number) => multipart(buildPostParts(rootRun({ inputs: { text: 'x'.repeat(bytes) } })));
const buildOverloadAnswer = (what: string) => [503, 'OVERLOADED', '1', expect.stringContaining(what)];
const parts = ({ status, headers, text }: Awaited<ReturnType<Wire['multipart']>>) => [
  status,
  (JSON.parse(text) as { code?: string }).code,
  headers.get('retry-after'),
  text,
];

test('shares one budget among concurrent bodies; a client that disconnects returns its part', async () => {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(wire.url).port) });
  socket.write(`POST /runs/multipart HTTP/1.1\r\nHost: x\r\nx-api-key: ${wire.key}\r\nContent-Length: 50000\r\n\r\n`);
  socket.write('y'.repeat(45_000));
  await until('the budget to be full', async () => (await wire.multipart(body(20_000))).status === 503, 10_000);
  expect(parts(await wire.multipart(body(20_000)))).toEqual(buildOverloadAnswer('request bodies'));
  socket.destroy();
  await until('the budget is free', async () => (await wire.multipart(body(20_000))).status === 202, 10_000);
});

test('isolates organisations: unfinished bodies of one do not block another', async () => {
  const sockets = [0, 1, 2].map(() => {
    const socket = connect({ host: '127.0.0.1', port: Number(new URL(wire.url).port) });
    socket.write(`POST /runs/multipart HTTP/1.1\r\nHost: x\r\nx-api-key: ${wire.key}\r\nContent-Length: 50000\r\n\r\n`);
    socket.write('y'.repeat(19_900));
    return socket;
  });
  const held = async () => (await registry.getSingleMetric('runlake_ingest_body_bytes')?.get())?.values[0]?.value ?? 0;
  await until('their bytes are counted', async () => (await held()) === 59_700);
  expect((await quiet.multipart(body(20_000))).status).toBe(202);
  for (const socket of sockets) socket.destroy();
});

test('counts the size after decompression, and a rejected body returns its bytes', async () => {
  const zipped = gzipSync(body(100_000));
  for (let round = 0; round < 5; round++) {
    const answer = await wire.multipart(zipped, { 'content-encoding': 'gzip' });
    // It would get 503 each time that it is sent.
    const limit = expect.stringContaining(
      '60000 bytes (with the memory for its items and values, half of RUNLAKE_MEMORY_BYTES)',
    );
    expect(parts(answer)).toEqual([413, 'BODY_TOO_LARGE', null, limit]);
  }
  expect((await wire.multipart(body(50_000))).status).toBe(202);
});

test('responds 503 with Retry-After if the event log is full, and accepts the rejected bodies later', async () => {
  const bodies = Array.from({ length: 30 }, () => body(1_500));
  const answers = await Promise.all(bodies.map((one) => wire.multipart(one)));
  const refused = bodies.filter((_body, index) => answers[index]?.status !== 202);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.length).toBeLessThan(bodies.length);
  for (const answer of answers) {
    if (answer.status !== 202) expect(parts(answer)).toEqual(buildOverloadAnswer('events for the log'));
  }
  for (const one of refused) {
    await api.settled();
    expect((await wire.multipart(one)).status).toBe(202);
  }
});
