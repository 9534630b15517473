import { expect, test } from 'vitest';
import { decodeJson } from '../../../../pipelines/ingest/otlp/decode-json.ts';
import { attributes, request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { runToCompletion } from '../../../pipelines/ingest/run-to-completion.ts';
import { shareWire } from './wire.ts';

const { wire } = shareWire({ config: { maxRunBytes: 100_000 } });

const json = 'application/json';
const protobuf = 'application/x-protobuf';
let spans = 0;

/** Sends a span with the text of `langsmith.attachments`; returns the answer and the run. */
async function send(text: string, contentType = json) {
  const spanId = (++spans).toString(16).padStart(16, '0');
  const startNanos = BigInt(Date.now()) * 1_000_000n;
  const times = { startTimeUnixNano: String(startNanos), endTimeUnixNano: String(startNanos + 1n) };
  const body = request([span({ spanId, ...times, attributes: attributes({ 'langsmith.attachments': text }) })]);
  const bytes =
    contentType === json ? Buffer.from(body) : runToCompletion(decodeJson(Buffer.from(body), 64, 1_000)).body;
  const answer = await wire.send('POST', '/otel/v1/traces', bytes, { 'content-type': contentType });
  const { text: run } = await wire.send('GET', `/runs/00000000-0000-0000-0000-${spanId.slice(4)}`);
  const { s3_urls: urls, extra } = JSON.parse(run) as {
    s3_urls?: Record<string, { presigned_url: string; mime_type?: string }>;
    extra: { metadata: Record<string, unknown> };
  };
  return { answer, urls: urls ?? {}, metadata: extra.metadata };
}

const attachment = (name: string, content: string | Buffer, mimeType = 'audio/wav') => ({
  name,
  content: Buffer.from(content).toString('base64'),
  mime_type: mimeType,
});

test.each([json, protobuf])('attachments of a span are stored as those of its run (%s)', async (contentType) => {
  const audio = Buffer.from([0, 255, 254, 251, 13, 63, 191]);
  // Encoders such as that of PHP escape slashes, those of .NET plus signs, and MIME has lines of 76 characters.
  const text = JSON.stringify([attachment('ton "ä"', audio), attachment('empty', '', 'text/plain')]);
  const escaped = text
    .replace(/(?<=content":"....)/, '\\n')
    .replaceAll('/', '\\/')
    .replaceAll('+', '\\u002B');
  const { answer, urls, metadata } = await send(escaped, contentType);
  expect(answer.status).toBe(200);
  expect(Object.keys(urls).sort()).toEqual(['attachment.empty', 'attachment.ton "ä"']);
  const { presigned_url: url, mime_type: mimeType } = urls['attachment.ton "ä"'] ?? { presigned_url: '' };
  expect(mimeType).toBe('audio/wav');
  const content = await fetch(new URL(new URL(url, wire.url).pathname, wire.url));
  expect(Buffer.from(await content.arrayBuffer())).toEqual(audio);
  expect(metadata).not.toHaveProperty('langsmith.attachments');
});

test.each([
  ['no JSON', '[{'],
  ['an object', JSON.stringify(attachment('a', 'a'))],
  ['content that is not base64', JSON.stringify([attachment('a', 'a'), { name: 'b', content: 'two words' }])],
  ['content that is not text', JSON.stringify([{ name: 'b', content: 5 }])],
  ['a name that is not valid', JSON.stringify([attachment('x'.repeat(300), 'a')])],
  ['no name', JSON.stringify([{ content: '' }])],
])('%s stays in the metadata', async (_what, text) => {
  const { answer, urls, metadata } = await send(text);
  expect([answer.status, answer.text, urls]).toEqual([200, '{}', {}]);
  expect(metadata['langsmith.attachments']).toBe(text);
});

test('an attachment that is too large is rejected, and its run is accepted', async () => {
  const { answer, urls, metadata } = await send(
    JSON.stringify([attachment('large', 'x'.repeat(120_000)), attachment('small', 'x')]),
  );
  expect(answer.status).toBe(200);
  expect(JSON.parse(answer.text)).toEqual({
    partialSuccess: { rejectedSpans: '1', errorMessage: expect.stringMatching(/attachment large/) },
  });
  expect(Object.keys(urls)).toEqual(['attachment.small']);
  expect(metadata).not.toHaveProperty('langsmith.attachments');
});
