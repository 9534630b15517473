import type { IncomingMessage } from 'node:http';
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { attributes, request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { buildPostParts, multipart, multipartType, rootRun, shareWire } from './wire.ts';

const { api, wire } = shareWire();
beforeAll(async () => {
  // Creates the project beforehand, so that only parsing takes time between the end of the body and the log.
  expect((await wire.multipart(multipart(buildPostParts(rootRun())))).status).toBe(202);
});

/** Builds OTLP/JSON of almost the maximum body size, 100 MB. */
function otlpJson(): Buffer {
  const text = attributes({ 'gen_ai.prompt': 'x'.repeat(400), 'gen_ai.completion': 'y'.repeat(400), 'app.step': 7 });
  const times = { startTimeUnixNano: `${Date.now()}000000`, endTimeUnixNano: `${Date.now()}000000` };
  const spans = Array.from({ length: 85_000 }, (_, index) =>
    span({ ...times, spanId: (index + 1).toString(16).padStart(16, '0'), attributes: text, name: `step ${index}` }),
  );
  return Buffer.from(request(spans));
}

const runs = () => Array.from({ length: 20_000 }, () => rootRun({ inputs: { text: 'x'.repeat(500) } }));
const json = 'application/json';

test.each<[string, string, string, () => Buffer, number]>([
  ['100 MB of OTLP/JSON', '/otel/v1/traces', json, otlpJson, 97_000_000],
  [
    '20,000 runs in parts',
    '/runs/multipart',
    multipartType,
    () => multipart(runs().flatMap(buildPostParts)),
    20_000_000,
  ],
  ['20,000 runs as JSON', '/runs/batch', json, () => Buffer.from(JSON.stringify({ post: runs() })), 15_000_000],
])(
  'serves other requests while %s are parsed',
  async (_name, path, contentType, make, minBytes) => {
    const body = make();
    expect(body.length).toBeGreaterThan(minBytes);
    expect(body.length).toBeLessThanOrEqual(api.services.config.maxBodyBytes);
    const order: string[] = [];
    const onRequest = (message: IncomingMessage) => {
      if (message.method === 'POST') message.once('end', () => order.push('the body is there'));
    };
    api.server.server.on('request', onRequest);
    const { log } = api.services.accept;
    const publish = log.publish.bind(log);
    const spy = vi.spyOn(log, 'publish').mockImplementation((...messages) => {
      order.push('the body is read');
      return publish(...messages);
    });
    // Runs even if this case fails: otherwise the next case would wrap the spy again, and each request would fail with
    // 500.
    onTestFinished(() => {
      spy.mockRestore();
      api.server.server.off('request', onRequest);
    });
    const sent = wire.send('POST', path, body, { 'content-type': contentType });
    while (!order.includes('the body is read')) {
      const isBodyReceived = order.includes('the body is there');
      const { status } = await wire.send('GET', '/ok');
      expect(status).toBe(200);
      if (isBodyReceived && !order.includes('the body is read')) order.push('another request is answered');
    }
    expect([200, 202]).toContain((await sent).status);
    expect(order.slice(0, 2)).toEqual(['the body is there', 'another request is answered']);
  },
  120_000,
);
