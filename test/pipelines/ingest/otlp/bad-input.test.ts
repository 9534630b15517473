import { expect, test } from 'vitest';
import { isRunlakeError, type RunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { decodeJson } from '../../../../pipelines/ingest/otlp/decode-json.ts';
import { type OtlpRuns, readOtlp } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import fc from '../../../house/fast-check.ts';
import { runToCompletion } from '../run-to-completion.ts';
import { attributes, maxBytes, request, span, spanHex, texts, traceHex } from './requests.ts';

const protobuf = 'application/x-protobuf';

function errorOf(body: Buffer, contentType: string | undefined): RunlakeError {
  try {
    runToCompletion(readOtlp({ body, contentType, maxDepth: 16, maxParts: 1_000_000, maxBytes }));
  } catch (error) {
    if (isRunlakeError(error)) return error;
    throw error;
  }
  throw new Error('was taken');
}

test.each([
  ['a field number of 0', '00', 0, 'field number 0'],
  ['a varint that does not end', '80', 0, 'truncated varint'],
  ['a varint of eleven bytes', '0affffffffffffffffffff01', 1, 'varint longer than ten bytes'],
  ['a length beyond the body', '0a05aabb', 1, 'length beyond its message'],
  ['a length of 2^40', '0a8080808080808001', 1, 'length beyond its message'],
  ['a length beyond the message around it', '0a041203aaaa', 3, 'length beyond its message'],
  ['a group', '0b0c', 1, 'groups are not supported'],
  ['an unknown wire type', '0f', 1, 'unknown wire type'],
  ['a time cut short', '0a0712051203390102', 7, 'truncated field'],
])('%s is INVALID_PROTOBUF with its offset', (_name, hex, offset, reason) => {
  const error = errorOf(Buffer.from(hex, 'hex'), protobuf);
  expect(error.code).toBe('INVALID_PROTOBUF');
  expect(error.message).toBe(`Invalid protobuf at byte ${offset}: ${reason}.`);
});

test.each([
  ['', 'INVALID_JSON'],
  ['[]', 'INVALID_JSON'],
  ['{"resourceSpans":', 'INVALID_JSON'],
  ['{"resourceSpans":5}', 'INVALID_JSON'],
  ['{"resourceSpans":[5]}', 'INVALID_JSON'],
  ['{"resourceSpans":[{"scopeSpans":[{"spans":[5]}]}]}', 'INVALID_JSON'],
  ['{"resourceSpans":[{"scopeSpans":[{"scope":5}]}]}', 'INVALID_JSON'],
  ['{"resourceSpans":[{"resource":5}]}', 'INVALID_JSON'],
  ['{"a":"\xff"}', 'INVALID_UTF8'],
  [`{"a":${'['.repeat(200)}${']'.repeat(200)}}`, 'TOO_DEEP'],
])('%s is %s', (text, code) => {
  expect(errorOf(Buffer.from(text, 'latin1'), 'application/json').code).toBe(code);
});

test.each([[undefined], ['text/plain'], ['application/x-ndjson'], ['']])(
  'content type %s is refused',
  (contentType) => {
    expect(errorOf(Buffer.alloc(0), contentType).code).toBe('UNSUPPORTED_MEDIA_TYPE');
  },
);

test.each([
  ['application/x-protobuf', ''],
  ['Application/X-Protobuf; charset=x', ''],
  ['application/json; charset=utf-8', '{}'],
  ['application/json', '{"resourceSpans":[{"scopeSpans":[{"spans":[]}]}],"unknown":[1]}'],
  ['application/json', '{"resource_spans":null}'],
])('an empty request as %s is accepted: %j', (contentType, body) => {
  expect(
    runToCompletion(readOtlp({ body: Buffer.from(body), contentType, maxDepth: 16, maxParts: 1_000_000, maxBytes })),
  ).toEqual({
    drafts: [],
    rejected: [],
  });
});

test('a resource of the wrong type causes its spans to be refused, and no others', () => {
  const bad = { resource: { attributes: [5] }, scopeSpans: [{ spans: [span(), span()] }] };
  const good = { scopeSpans: [{ spans: [span()] }] };
  const body = Buffer.from(JSON.stringify({ resourceSpans: [bad, good] }));
  const { drafts, rejected } = runToCompletion(
    readOtlp({ body, contentType: 'application/json', maxDepth: 16, maxParts: 1_000_000, maxBytes }),
  );
  expect(rejected.map(({ index }) => index)).toEqual([0, 1]);
  expect(drafts.map(({ index }) => index)).toEqual([2]);
});

test('a scope of the wrong type causes its spans to be refused, and no others', () => {
  const scopes = [{ name: 'good' }, { name: 'bad', version: 1 }, { name: 'good2' }];
  const scopeSpans = scopes.map((scope) => ({ scope, spans: [span()] }));
  const body = Buffer.from(JSON.stringify({ resourceSpans: [{ scopeSpans }] }));
  const { drafts, rejected } = runToCompletion(
    readOtlp({ body, contentType: 'application/json', maxDepth: 16, maxParts: 1_000_000, maxBytes }),
  );
  expect(rejected.map(({ index }) => index)).toEqual([1]);
  expect(drafts.map(({ index }) => index)).toEqual([0, 2]);
});

test('unknown fields and fields of another wire type are skipped, whatever their order', () => {
  const trace = Buffer.from(traceHex, 'hex');
  const id = Buffer.from(spanHex, 'hex');
  const start = Buffer.from('3915cd5b0700000000', 'hex');
  const unknown = Buffer.from('f80601d1070000000000000000da0702aabb25000000002801', 'hex');
  const fields = Buffer.concat([unknown, start, Buffer.from([0x12, 8]), id, unknown, Buffer.from([0x0a, 16]), trace]);
  const wrap = (tag: number, inner: Buffer) => Buffer.concat([Buffer.from([tag, inner.length]), inner]);
  const body = wrap(0x0a, Buffer.concat([wrap(0x12, wrap(0x12, fields)), wrap(0x0a, Buffer.alloc(0))]));
  const { drafts, rejected } = runToCompletion(
    readOtlp({ body, contentType: protobuf, maxDepth: 16, maxParts: 1_000_000, maxBytes }),
  );
  expect(rejected).toEqual([]);
  expect(drafts[0]?.startTimeMicros).toBe(123_456);
  expect(drafts[0]?.values.name).toBe('unknown');
});

const rich = runToCompletion(
  decodeJson(
    Buffer.from(
      request(
        [
          span({
            parentSpanId: 'aaaaaaaaaaaaaaaa',
            traceState: 'a=b',
            status: { code: 2, message: 'žluť' },
            attributes: attributes({
              'gen_ai.operation.name': 'chat',
              'gen_ai.prompt.0.content': 'hi "there"',
              'gen_ai.prompt.0.role': 'user',
              'gen_ai.completion': '{"a":[1,2,{"b":null}]}',
              'gen_ai.usage.input_tokens': 3,
              'langsmith.metadata.x': '[1]',
              'langsmith.span.tags': 'a,b',
              metadata: '{"k":1}',
              nested: [1, 2.5, ['x', true]],
            }),
            events: [{ name: 'exception', timeUnixNano: '1', attributes: attributes({ 'exception.message': 'm' }) }],
            links: [{ traceId: traceHex, spanId: spanHex }],
          }),
          span({ spanId: 'aaaaaaaaaaaaaaaa' }),
        ],
        { attributes: attributes({ 'service.name': 's' }) },
        { name: 'lib' },
      ),
    ),
    16,
    1_000_000,
  ),
).body;

/** Reads damaged bytes; the result is either a client error or valid JSON. */
function readDamaged(body: Buffer): void {
  let runs: OtlpRuns;
  try {
    runs = runToCompletion(readOtlp({ body, contentType: protobuf, maxDepth: 16, maxParts: 1_000_000, maxBytes }));
  } catch (error) {
    if (!isRunlakeError(error) || error.class !== 'caller') throw error;
    return;
  }
  for (const { values } of runs.drafts) {
    const { name: _, runType: __, parentRunId: ___, referenceExampleId: ____, ...rest } = texts(values);
    for (const json of Object.values(rest)) if (typeof json === 'string') JSON.parse(json);
  }
}

test('every prefix of a request is refused or read', () => {
  for (let length = 0; length < rich.length; length++) readDamaged(rich.subarray(0, length));
});

test('damaged requests are refused or read, and cause no other error', () => {
  const damage = fc.array(fc.tuple(fc.nat(rich.length - 1), fc.integer({ min: 0, max: 255 })), {
    minLength: 1,
    maxLength: 6,
  });
  fc.assert(
    fc.property(damage, (changes) => {
      const body = Buffer.from(rich);
      for (const [at, byte] of changes) body[at] = byte;
      readDamaged(body);
    }),
    { numRuns: 5_000 },
  );
});

test('random bytes are refused or read', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => readDamaged(Buffer.from(bytes))),
    {
      numRuns: 5_000,
    },
  );
});

test('damaged JSON is refused or read', () => {
  const text = request([span({ attributes: attributes({ a: 1, b: 'x', c: [1] }) })]);
  fc.assert(
    fc.property(fc.nat(text.length), fc.nat(20), fc.string({ maxLength: 5 }), (at, removed, inserted) => {
      const body = Buffer.from(text.slice(0, at) + inserted + text.slice(at + removed));
      try {
        runToCompletion(
          readOtlp({ body, contentType: 'application/json', maxDepth: 16, maxParts: 1_000_000, maxBytes }),
        );
      } catch (error) {
        if (!isRunlakeError(error)) throw error;
      }
    }),
    { numRuns: 5_000 },
  );
});

test.each([
  ['application/json', Buffer.from(request([span(), span(), span()])), 2, 3],
  [protobuf, Buffer.from('0a0812061200120012000a06120412001200', 'hex'), 4, 5],
  [protobuf, Buffer.from('0a000a000a00', 'hex'), 2, 3],
])('%s with more parts than the limit is TOO_MANY_PARTS', (contentType, body, tooMany, enough) => {
  const read = (maxParts: number) => runToCompletion(readOtlp({ body, contentType, maxDepth: 16, maxParts, maxBytes }));
  const refusal = expect.objectContaining({
    code: 'TOO_MANY_PARTS',
    message: expect.stringContaining('the limit of one request'),
  });
  expect(() => read(tooMany)).toThrow(refusal);
  expect(() => read(enough)).not.toThrow();
});
