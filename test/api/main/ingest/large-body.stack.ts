/** The largest accepted bodies, end to end over Kafka. */
import { expect, test } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { askClickhouse } from '../../../infra/embedded/processes.ts';
import { until } from '../../../infra/until.ts';
import { attributes, request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { startRunlake } from '../../../runlake-process.ts';
import { buildPostParts, multipart, multipartType, rootRun } from './wire.ts';

const spans = 85_000;
const parts = 20_000;

const runlake = forSuite(() => startRunlake());

/** Builds OTLP/JSON of almost the maximum body size, 100 MB, in one trace and therefore in one partition. */
function otlpJson(): Buffer {
  const text = attributes({ 'gen_ai.prompt': 'x'.repeat(400), 'gen_ai.completion': 'y'.repeat(400), 'app.step': 7 });
  const times = { startTimeUnixNano: `${Date.now()}000000`, endTimeUnixNano: `${Date.now()}000000` };
  const all = Array.from({ length: spans }, (_, index) =>
    span({ ...times, spanId: (index + 1).toString(16).padStart(16, '0'), attributes: text, name: `step ${index}` }),
  );
  return Buffer.from(request(all));
}

const buildMultipartBody = () =>
  multipart(
    Array.from({ length: parts }, () => rootRun({ inputs: { text: 'x'.repeat(500) } })).flatMap(buildPostParts),
  );

test('accepts 100 MB of spans of one trace and 20,000 runs in parts at once, and stores them all', {
  timeout: 300_000,
}, async () => {
  const send = async (path: string, type: string, body: Buffer) => {
    const headers = { 'x-api-key': runlake.apiKey, 'content-type': type };
    const startedAtMs = performance.now();
    const answer = await fetch(`${runlake.url}${path}`, { method: 'POST', headers, body: new Uint8Array(body) });
    console.info(
      path,
      answer.status,
      await answer.text().then((t) => t.slice(0, 300)),
      performance.now() - startedAtMs,
    );
    return answer.status;
  };
  expect(await send('/otel/v1/traces', 'application/json', otlpJson())).toBe(200);
  expect(await send('/runs/multipart', multipartType, buildMultipartBody())).toBe(202);
  const { clickhouseUrl } = runlake.stores();
  const stored = async () => Number(await askClickhouse(clickhouseUrl, 'SELECT uniqExact(id) FROM runs'));
  await until('all runs are stored', async () => (await stored()) === spans + parts, 120_000);
});
