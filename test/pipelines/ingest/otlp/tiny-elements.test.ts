import { expect, test } from 'vitest';
import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { scanJson } from '../../../../pipelines/ingest/json/scan.ts';
import { decodeJson } from '../../../../pipelines/ingest/otlp/decode-json.ts';
import { readOtlp } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import { runToCompletion } from '../run-to-completion.ts';
import { attributes, maxBytes, request, span, texts } from './requests.ts';

const json = 'application/json';
const protobuf = 'application/x-protobuf';
const maxParts = 100_000;

function read(body: Buffer, contentType: string): string {
  try {
    const { drafts, rejected } = runToCompletion(readOtlp({ body, contentType, maxDepth: 5_000, maxParts, maxBytes }));
    return `${drafts.length} taken, ${rejected.length} rejected`;
  } catch (error) {
    if (isRunlakeError(error)) return `${error.code}: ${error.message}`;
    throw error;
  }
}

/** Measures the best of three executions, because the others may have waited for a CPU. */
function timeMs(work: () => void): number {
  const timesMs = Array.from({ length: 3 }, () => {
    const startMs = performance.now();
    work();
    return performance.now() - startMs;
  });
  return Math.min(...timesMs);
}

/** Returns `before`, then `count` times `element`, separated by commas, then `after`. */
function many(before: string, element: string, count: number, after: string): Buffer {
  return Buffer.concat([
    Buffer.from(before),
    Buffer.alloc(count * (element.length + 1) - 1, `${element},`),
    Buffer.from(after),
  ]);
}

/** Wraps a protobuf message in messages with these tags, from the inside out. */
function wrap(inner: Buffer, ...tags: number[]): Buffer {
  return tags.reduce((body, tag) => {
    const head = [tag];
    for (let rest = body.length; ; rest >>>= 7) {
      head.push(rest < 0x80 ? rest : (rest & 0x7f) | 0x80);
      if (rest < 0x80) break;
    }
    return Buffer.concat([Buffer.from(head), body]);
  }, inner);
}

const millions = 7_000_000;
const spansPrefix = '{"resourceSpans":[{"scopeSpans":[{"spans":[';

test.each<[string, string, () => Buffer, RegExp]>([
  [
    'empty resources',
    json,
    () => many('{"resourceSpans":[', '{}', millions, ']}'),
    /100000 parts \(the limit of one request\)/,
  ],
  [
    'numbers for spans',
    json,
    () => many(spansPrefix, '5', 2 * millions, ']}]}]}'),
    /100000 parts \(the limit of one request\)/,
  ],
  ['numbers beside the spans', json, () => many('{"x":[', '5', 2 * millions, ']}'), /JSON values of one span/],
  ['empty spans', json, () => many(spansPrefix, '{}', 1_000_000, ']}]}]}'), /100000 parts/],
  [
    'empty events',
    json,
    () => many(`${spansPrefix}{"events":[`, '{}', 1_000_000, ']}]}]}]}'),
    /JSON values of one span/,
  ],
  [
    'fewer empty events',
    json,
    () => many(`${spansPrefix}{"events":[`, '{}', 200_000, ']}]}]}]}'),
    /100000 parts .*events/,
  ],
  ['empty resources', protobuf, () => Buffer.alloc(2 * millions, '\n\0'), /100000 parts \(the limit of one request\)/],
  ['empty attributes', protobuf, () => wrap(Buffer.alloc(2 * millions, 'J\0'), 0x12, 0x12, 0x0a), /attributes/],
  ['empty events', protobuf, () => wrap(Buffer.alloc(2 * millions, 'Z\0'), 0x12, 0x12, 0x0a), /events/],
  [
    'empty array elements',
    protobuf,
    () => {
      const resource = wrap(Buffer.alloc(2 * millions, '\n\0'), 0x2a, 0x12, 0x0a, 0x0a);
      return wrap(Buffer.concat([resource, wrap(Buffer.alloc(0), 0x12, 0x12)]), 0x0a);
    },
    /array elements/,
  ],
  ['empty links', protobuf, () => wrap(Buffer.alloc(2 * millions, 'j\0'), 0x12, 0x12, 0x0a), /links/],
])('millions of %s in %s are refused in the time of a few scans', (_name, contentType, make, words) => {
  const body = make();
  const probe = many('[', '{}', millions, ']');
  const scanMs = timeMs(() => scanJson(probe, 0, probe.length, { part: 'the body', maxDepth: 2 }));
  let answer = '';
  const readMs = timeMs(() => {
    answer = read(body, contentType);
  });
  expect(answer).toMatch(/^TOO_MANY_PARTS/);
  expect(answer).toMatch(words);
  expect(readMs).toBeLessThan(10 * scanMs + 200);
});

const keys = (count: number) => Array.from({ length: count }, (_, index) => `"k${index}":1`).join(',');
const inSpan = `${spansPrefix}${JSON.stringify(span()).slice(0, -1)},`;

test.each<[string, string, string]>([
  ['a request', '{', '}'],
  ['a resource of spans', '{"resourceSpans":[{', '}]}'],
  ['a scope of spans', '{"resourceSpans":[{"scopeSpans":[{', '}]}]}'],
  ['a span', inSpan, '}]}]}]}'],
  ['a resource', '{"resourceSpans":[{"resource":{', '}}]}'],
  ['a scope', '{"resourceSpans":[{"scopeSpans":[{"scope":{', '}}]}]}'],
  ['a value', `${inSpan}"attributes":[{"key":"a","value":{`, '}}]}]}]}]}'],
])('%s may have no more members than a request may have parts', (_where, before, after) => {
  const answer = (count: number) => read(Buffer.from(`${before}${keys(count)}${after}`), json);
  expect(answer(99_980)).toMatch(/^[01] taken, 0 rejected/);
  expect(answer(100_001)).toBe('TOO_MANY_PARTS: The body has more than 100000 parts (members of one JSON object).');
});

test('unknown fields with very many distinct keys cost no more than a few scans', () => {
  const body = Buffer.from(`${inSpan}"x":[${Array.from({ length: 9 }, () => `{${keys(100_000)}}`).join(',')}]}]}]}]}`);
  const scanMs = timeMs(() => scanJson(body, 0, body.length, { part: 'the body', maxDepth: 20 }));
  let answer = '';
  const readMs = timeMs(() => {
    answer = read(body, json);
  });
  expect(answer).toBe('1 taken, 0 rejected');
  expect(readMs).toBeLessThan(10 * scanMs + 200);
});

test('one resource shared by very many scopes is not read again for each of them', () => {
  const resource = wrap(Buffer.alloc(20_000, '\n\0'), 0x0a);
  const scope = wrap(wrap(Buffer.alloc(0), 0x12), 0x12);
  const body = wrap(Buffer.concat([resource, ...Array.from({ length: 5_000 }, () => scope)]), 0x0a);
  expect(read(body, protobuf)).toMatch(/^TOO_MANY_PARTS: .*attributes, events, links and array elements/);
});

test.each([json, protobuf])('attributes of a resource that very many spans share are bounded, in %s', (contentType) => {
  const resource = { attributes: attributes({ large: 'x'.repeat(1_000_000) }) };
  const text = Buffer.from(
    request(
      Array.from({ length: 2_600 }, () => span()),
      resource,
    ),
  );
  const body = contentType === json ? text : runToCompletion(decodeJson(text, 16, maxParts)).body;
  let reservedBytes = 0;
  const reserve = (bytes: number) => {
    reservedBytes += bytes;
  };
  const refusal = expect.objectContaining({ code: 'BODY_TOO_LARGE', status: 413 });
  const limits = { maxDepth: 16, maxParts, maxBytes: 20_000_000 };
  expect(() => runToCompletion(readOtlp({ body, contentType, ...limits, reserve }))).toThrow(refusal);
  expect(reservedBytes).toBeGreaterThan(20_000_000);
  expect(reservedBytes).toBeLessThan(50_000_000);
});

test('characters that JSON escapes are bounded too', () => {
  const text = Buffer.from(request([span({ attributes: attributes({ large: '\u0001'.repeat(4_000_000) }) })]));
  const { body } = runToCompletion(decodeJson(text, 16, maxParts));
  expect(read(body, protobuf)).toBe('1 taken, 0 rejected');
  const limits = { maxDepth: 16, maxParts, maxBytes: 20_000_000 };
  expect(() => runToCompletion(readOtlp({ body, contentType: protobuf, ...limits }))).toThrow('larger than 20000000');
});

test.each<[string, number, number]>([
  ['deeper than any convention', 97, 0],
  ['with very many levels in all', 14, 50_000 / 14],
])('names of attributes that are %s stay in the metadata', (_name, levels, maxMessages) => {
  const values = Array.from({ length: 20_000 }, (_, index) => [`gen_ai.prompt.${index}${'.a'.repeat(levels)}`, 1]);
  const body = Buffer.from(request([span({ attributes: attributes(Object.fromEntries(values)) })]));
  const limits = { maxDepth: 5_000, maxParts, maxBytes };
  const { drafts } = runToCompletion(readOtlp({ body, contentType: json, ...limits }));
  const { inputs, extra } = texts(drafts[0]!.values) as Record<string, string | undefined>;
  const messages = inputs === undefined ? 0 : Object.values(JSON.parse(inputs) as { messages: [] })[0]!.length;
  expect(messages).toBeLessThanOrEqual(maxMessages + 1);
  expect(messages).toBeGreaterThanOrEqual(maxMessages / 2);
  const { metadata } = JSON.parse(extra!) as { metadata: object };
  expect(Object.keys(metadata).filter((key) => key.startsWith('gen_ai.prompt.'))).toHaveLength(20_000 - messages);
});

test('a large request of ordinary spans is accepted', () => {
  const values = Object.fromEntries(
    Array.from({ length: 20 }, (_, index) => [`http.header.${index}`, `value ${index}`]),
  );
  const one = JSON.stringify(span({ attributes: attributes(values), events: [{ name: 'e', timeUnixNano: '1' }] }));
  const count = 20_000;
  const body = many(spansPrefix, one, count, ']}]}]}');
  expect(body.length).toBeGreaterThan(20_000_000);
  const limited = () =>
    runToCompletion(readOtlp({ body, contentType: json, maxDepth: 5_000, maxParts: count, maxBytes }));
  expect(limited().drafts).toHaveLength(count);
}, 60_000);

test('a span with thousands of attributes is read completely, whatever the limit on parts', () => {
  const values = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`a.${index}`, index]));
  const body = Buffer.from(request([span({ attributes: attributes(values) })]));
  expect(
    runToCompletion(readOtlp({ body, contentType: json, maxDepth: 16, maxParts: 1, maxBytes })).drafts,
  ).toHaveLength(1);
});

test('the error for JSON that is too deep names the configured limit', () => {
  const deep = Buffer.from(`{"resourceSpans":${'['.repeat(30_000)}${']'.repeat(30_000)}}`);
  expect(read(deep, json)).toBe(
    'TOO_DEEP: The JSON in the body is nested deeper than 5000 (the limit of all JSON bodies).',
  );
});
