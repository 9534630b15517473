import { describe, expect, test } from 'vitest';
import { decodeJson } from '../../../../pipelines/ingest/otlp/decode-json.ts';
import { readOtlp } from '../../../../pipelines/ingest/otlp/read-otlp.ts';
import { runToCompletion } from '../run-to-completion.ts';
import {
  attributes,
  maxBytes,
  readBoth,
  readDraft,
  request,
  runId,
  span,
  spanHex,
  startMicros,
  startNanos,
  texts,
  traceId,
} from './requests.ts';

const explicitRunId = '018f0000-0000-7000-8000-00000000000a';
const explicitTraceId = '018f0000-0000-7000-8000-00000000000b';
const rootSegment = `20251124T160000000001Z${explicitTraceId}`;
const explicitRunSegment = `20251124T160001000002Z${explicitRunId}`;
const parent = 'aaaaaaaaaaaaaaaa';
const parentUuid = '00000000-0000-0000-aaaa-aaaaaaaaaaaa';

describe('ids of a single span', () => {
  test('are derived from the OTel ids', () => {
    const draft = readDraft({ parentSpanId: parent });
    expect(draft).toMatchObject({ runId, traceId, startTimeMicros: startMicros, traceTimeMicros: startMicros });
    expect(draft.values).toMatchObject({ parentRunId: parentUuid, startedAtMicros: startMicros });
    expect(draft.values.endedAtMicros).toBe(startMicros + 1_500_000);
  });

  test.each([
    ['', undefined],
    ['0000000000000000', undefined],
    ['AAAAAAAAAAAAAAAA', parentUuid],
  ])('parent %j gives %s', (parentSpanId, expected) => {
    expect(readDraft({ parentSpanId }).values.parentRunId).toBe(expected);
  });

  test('a span without an end is still running', () => {
    expect(readDraft({ endTimeUnixNano: undefined }).values.endedAtMicros).toBeUndefined();
  });

  test('SDK attributes replace them, and the OTel ids are kept as well', () => {
    const values = {
      'langsmith.span.id': explicitRunId.toUpperCase(),
      'langsmith.trace.id': explicitTraceId,
      'langsmith.span.parent_id': explicitTraceId,
      'langsmith.span.dotted_order': `${rootSegment}.${explicitRunSegment}`,
      'langsmith.trace.session_id': '11111111-2222-3333-4444-555555555555',
    };
    const draft = readDraft({ attributes: attributes(values), parentSpanId: parent });
    expect(draft).toMatchObject({
      runId: explicitRunId,
      traceId: explicitTraceId,
      dottedOrder: `${rootSegment}.${explicitRunSegment}`,
      startTimeMicros: Date.UTC(2025, 10, 24, 16, 0, 1) * 1000 + 2,
      traceTimeMicros: Date.UTC(2025, 10, 24, 16) * 1000 + 1,
      projectId: '11111111-2222-3333-4444-555555555555',
    });
    expect(draft.values).toMatchObject({ parentRunId: explicitTraceId, startedAtMicros: startMicros });
    expect(texts(draft.values).extra).toBe(
      `{"metadata":{},"otel":{"trace_id":"${traceId.replaceAll('-', '')}","span_id":"${spanHex}","parent_span_id":"${parent}"}}`,
    );
  });

  test('a dotted order alone determines the ids', () => {
    const values = { 'langsmith.span.dotted_order': `${rootSegment}.${explicitRunSegment}` };
    const draft = readDraft({ attributes: attributes(values) });
    expect(draft).toMatchObject({ runId: explicitRunId, traceId: explicitTraceId });
    expect(draft.values.parentRunId).toBe(explicitTraceId);
  });

  test.each([
    ['a dotted order of one segment', { 'langsmith.span.dotted_order': rootSegment }],
    ['a run that is its own trace', { 'langsmith.span.id': explicitTraceId, 'langsmith.trace.id': explicitTraceId }],
    ['a span marked by the SDK', { 'langsmith.is_root': true }],
    ['a session marked by a voice integration', { 'langsmith.root_span': true }],
  ])('%s is a root, whatever its OTel parent', (_name, values) => {
    expect(readDraft({ attributes: attributes(values), parentSpanId: parent }).values.parentRunId).toBeUndefined();
  });
});

describe('spans of one request', () => {
  const child = (fields = {}) => span({ spanId: 'bbbbbbbbbbbbbbbb', parentSpanId: spanHex, ...fields });
  const later = { startTimeUnixNano: String(startNanos + 1_000_000n) };

  test('earlier spans take time and project from the root that follows', () => {
    const root = span({ attributes: attributes({ 'langsmith.trace.session_name': 'shop' }) });
    const { drafts } = readBoth(request([child(later), root]));
    expect(drafts.map(({ traceTimeMicros }) => traceTimeMicros)).toEqual([startMicros, startMicros]);
    expect(drafts.map(({ projectName }) => projectName)).toEqual(['shop', 'shop']);
    expect(drafts[0]?.startTimeMicros).toBe(startMicros + 1_000);
  });

  test('without the root, the time is that of the earliest span, and the project that of any span', () => {
    const first = child({ spanId: 'cccccccccccccccc' });
    const named = child({ ...later, attributes: attributes({ 'langsmith.trace.session_name': 'shop' }) });
    const { drafts } = readBoth(request([named, first]));
    expect(drafts.map(({ traceTimeMicros }) => traceTimeMicros)).toEqual([startMicros, startMicros]);
    expect(drafts.map(({ projectName }) => projectName)).toEqual(['shop', 'shop']);
  });

  test('a span keeps its own project', () => {
    const root = span({ attributes: attributes({ 'langsmith.trace.session_name': 'shop' }) });
    const other = child({ attributes: attributes({ 'langsmith.trace.session_name': 'other' }) });
    expect(readBoth(request([root, other])).drafts.map(({ projectName }) => projectName)).toEqual(['shop', 'other']);
  });

  test('a span finds a parent that sets its own run id', () => {
    const root = span({ attributes: attributes({ 'langsmith.span.id': explicitRunId }) });
    expect(readBoth(request([child(), root])).drafts[0]?.values.parentRunId).toBe(explicitRunId);
  });

  test('ids do not depend on how spans are split over requests', () => {
    const spans = [child(later), span(), child({ spanId: 'dddddddddddddddd', parentSpanId: 'bbbbbbbbbbbbbbbb' })];
    const keys = (drafts: ReturnType<typeof readBoth>['drafts']) =>
      drafts.map(({ runId: id, traceId: trace, startTimeMicros, values }) => [
        id,
        trace,
        startTimeMicros,
        values.parentRunId,
      ]);
    const together = keys(readBoth(request(spans)).drafts);
    const apart = spans.flatMap((one) => keys(readBoth(request([one])).drafts));
    expect(apart).toEqual(together);
  });
});

describe('an invalid span does not affect the others', () => {
  const invalidIdAttributes = attributes({ 'langsmith.span.id': 'x' });
  const order = (text: string, more = {}) => attributes({ 'langsmith.span.dotted_order': text, ...more });
  test.each([
    [{ traceId: '' }, 'trace_id is not 16 bytes, or all zero'],
    [{ traceId: 'abcd' }, 'trace_id is not 16 bytes, or all zero'],
    [{ traceId: '0'.repeat(32) }, 'trace_id is not 16 bytes, or all zero'],
    [{ traceId: 'xyz' }, 'traceId is not hex'],
    [{ spanId: '0'.repeat(16) }, 'span_id is not 8 bytes, or all zero'],
    [{ spanId: 'aabb' }, 'span_id is not 8 bytes, or all zero'],
    [{ parentSpanId: 'aabb' }, 'parent_span_id is not 8 bytes'],
    [{ parentSpanId: '0000' }, 'parent_span_id is not 8 bytes'],
    [{ startTimeUnixNano: '0' }, 'start_time_unix_nano is missing'],
    [{ startTimeUnixNano: undefined }, 'start_time_unix_nano is missing'],
    [{ startTimeUnixNano: '-1' }, 'startTimeUnixNano is not a 64-bit integer'],
    [{ startTimeUnixNano: 'soon' }, 'startTimeUnixNano is not a 64-bit integer'],
    [{ name: 5 }, 'name is not a string'],
    [{ kind: 'SPAN_KIND_CLIENT' }, 'kind is not a whole number'],
    [{ attributes: {} }, 'attributes is not a list'],
    [{ attributes: [5] }, 'an attribute is not an object'],
    [{ attributes: [{ key: 'a', value: { intValue: '1.5' } }] }, 'intValue is not a 64-bit integer'],
    [{ attributes: [{ key: 'a', value: { intValue: '9223372036854775808' } }] }, 'intValue is not a 64-bit integer'],
    [{ attributes: [{ key: 'a', value: { doubleValue: 'x' } }] }, 'doubleValue is not a number'],
    [{ attributes: [{ key: 'a', value: { boolValue: 'true' } }] }, 'boolValue is not a boolean'],
    [{ events: [5] }, 'an element of events is not an object'],
    [{ attributes: invalidIdAttributes }, 'langsmith.span.id is not a UUID'],
    [{ attributes: order('x') }, /^langsmith\.span\.dotted_order has 1 characters/],
    [
      { attributes: order(rootSegment, { 'langsmith.span.id': explicitRunId }) },
      'langsmith.span.dotted_order does not end with langsmith.span.id',
    ],
    [
      { attributes: order(`${rootSegment}.${explicitRunSegment}`, { 'langsmith.trace.id': explicitRunId }) },
      'langsmith.span.dotted_order does not begin with langsmith.trace.id',
    ],
    [
      { attributes: order(`${rootSegment}.${explicitRunSegment}`, { 'langsmith.span.parent_id': explicitRunId }) },
      'langsmith.span.dotted_order does not agree with langsmith.span.parent_id',
    ],
  ])('%j', (fields, reason) => {
    const { drafts, rejected } = readBoth(request([span({ spanId: parent }), span(fields), span()]));
    expect(drafts.map(({ index }) => index)).toEqual([0, 2]);
    expect(rejected).toEqual([
      { index: 1, reason: typeof reason === 'string' ? reason : expect.stringMatching(reason) },
    ]);
  });

  test('text that is not UTF-8 is reported with its offset', () => {
    const json = request([span({ attributes: attributes({ k: 'MARK' }) }), span({ spanId: parent })]);
    const { body } = runToCompletion(decodeJson(Buffer.from(json), 64, 1_000_000));
    const at = body.indexOf('MARK');
    body[at] = 0xff;
    const { drafts, rejected } = runToCompletion(
      readOtlp({
        body,
        contentType: 'application/x-protobuf',
        maxDepth: 64,
        maxParts: 1_000_000,
        maxBytes,
      }),
    );
    expect(drafts.map(({ index }) => index)).toEqual([1]);
    expect(rejected).toEqual([{ index: 0, reason: `invalid UTF-8 in the string at byte ${at}` }]);
  });
});
