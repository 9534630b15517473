import { describe, expect, test } from 'vitest';
import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { computeWorkerFrameLimits, encodeFrame, FrameReader } from '../../../../pipelines/agents/workers/frames.ts';
import { decodeMessage, encodeMessage } from '../../../../pipelines/agents/workers/message-codec.ts';
import type { MessageFromWorker } from '../../../../pipelines/agents/workers/messages.ts';
import fc from '../../../house/fast-check.ts';

const maxEventBytes = 64 * 1024;

/** Decodes bytes as the parent process does, in reads of `size` bytes. */
function read(bytes: Uint8Array, size = bytes.byteLength): MessageFromWorker[] {
  const messages: MessageFromWorker[] = [];
  const reader = new FrameReader(computeWorkerFrameLimits(maxEventBytes), (frame) => {
    messages.push(decodeMessage(frame, maxEventBytes));
  });
  const all = Buffer.from(bytes);
  for (let at = 0; at < all.length; at += Math.max(1, size)) reader.push(all.subarray(at, at + Math.max(1, size)));
  return messages;
}

const name = fc.constantFrom('values', 'custom', 'v2', 'a:1|b:2');
const chunk = fc.record({
  mode: name,
  event: name,
  namespace: fc.constantFrom('', 'a:1|b:2'),
  data: fc.dictionary(fc.string(), fc.jsonValue()).map((value) => Buffer.from(JSON.stringify(value))),
});
const text = fc.jsonValue().map((value) => JSON.stringify(value));
const key = fc.integer({ min: 1, max: 1_000 });
const traced = fc.record({
  kind: fc.constantFrom('post' as const, 'patch' as const),
  runId: fc.uuid(),
  location: fc.string(),
  members: fc.string({ unit: 'grapheme' }),
  values: fc.string(),
  open: fc.boolean(),
});
/** A value that JSON text preserves; for example, JSON has no -0. */
const jsonValue = fc.jsonValue().map((value) => JSON.parse(JSON.stringify(value)) as unknown);
const message: fc.Arbitrary<MessageFromWorker> = fc.oneof(
  fc.constant<MessageFromWorker>({ kind: 'heartbeat' }),
  fc
    .array(chunk, { minLength: 1, maxLength: 20 })
    .chain((chunks) => key.map((key): MessageFromWorker => ({ kind: 'chunks', key, chunks }))),
  fc.record({ key, json: text }).map((rest): MessageFromWorker => ({ kind: 'response', ...rest })),
  fc.record({ key, runs: fc.array(traced, { maxLength: 5 }) }).map(({ key, runs }): MessageFromWorker => {
    return { kind: 'traced', key, traced: { droppedRuns: 0, droppedValues: 1, runs } };
  }),
  fc.record({ key, values: text, value: jsonValue }).map(({ key, values, value }): MessageFromWorker => {
    const interrupts = { task: [{ id: 'i', value }] };
    return { kind: 'ended', key, nodes: 3, outcome: { kind: 'finished', values, next: ['node'], interrupts } };
  }),
  fc.record({ key, values: text, value: jsonValue }).map(({ key, values, value }): MessageFromWorker => {
    const failed = { kind: 'failed', error: 'TypeError', message: 'failed' } as const;
    const interrupts = { task: [{ id: 'i', value }] };
    return { kind: 'ended', key, nodes: 0, outcome: { ...failed, values, interrupts } };
  }),
  fc.constant<MessageFromWorker>({
    kind: 'ready',
    loadErrors: { one: 'missing' },
    routes: [{ method: 'GET', path: '/' }],
    nodes: { two: { names: new Set(['a']), targets: new Set() } },
  }),
);
const written = (messages: readonly MessageFromWorker[]) =>
  Buffer.concat(messages.flatMap((each) => encodeMessage(each)));

test('decodes messages as encoded, however the bytes are split', () => {
  fc.assert(
    fc.property(fc.array(message, { maxLength: 6 }), fc.integer({ min: 1, max: 500 }), (messages, size) => {
      expect(read(written(messages), size)).toEqual(messages);
    }),
  );
});

/**
 * Runs `work`, which may fail only with a protocol violation.
 *
 * @returns whether it did.
 */
function isViolation(work: () => void): boolean {
  try {
    work();
    return false;
  } catch (error) {
    expect(isRunlakeError(error) && error.code).toBe('WORKER_PROTOCOL_VIOLATED');
    return true;
  }
}

describe('any input is a valid message or a protocol violation', () => {
  test('random bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.integer({ min: 1, max: 300 }), (bytes, size) => {
        isViolation(() => read(bytes, size));
      }),
      { numRuns: 2_000 },
    );
  });

  test('valid messages with bytes changed, removed or added', () => {
    const change = fc.record({ at: fc.nat(4_000), bytes: fc.uint8Array({ maxLength: 4 }), removed: fc.nat(4) });
    fc.assert(
      fc.property(
        fc.array(message, { minLength: 1, maxLength: 3 }),
        fc.array(change, { maxLength: 4 }),
        (messages, changes) => {
          let bytes = written(messages);
          for (const { at, bytes: added, removed } of changes) {
            const location = at % bytes.length;
            bytes = Buffer.concat([bytes.subarray(0, location), added, bytes.subarray(location + removed)]);
          }
          isViolation(() => {
            for (const each of read(bytes, 64)) {
              if (each.kind === 'chunks') for (const { data } of each.chunks) JSON.parse(Buffer.from(data).toString());
              if (each.kind === 'response') JSON.parse(each.json);
            }
          });
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('heads with arbitrary JSON', () => {
    const kind = fc.constantFrom(
      'loading',
      'ready',
      'heartbeat',
      'chunks',
      'traced',
      'ended',
      'response',
      'query-error',
      'dying',
      'unusable',
      '__proto__',
      'constructor',
    );
    const head = fc.record(
      { kind, key: fc.jsonValue(), outcome: fc.jsonValue(), heads: fc.jsonValue(), runs: fc.jsonValue() },
      { requiredKeys: ['kind'] },
    );
    fc.assert(
      fc.property(head, (each) => void isViolation(() => read(Buffer.concat(encodeFrame(each))))),
      { numRuns: 1_000 },
    );
  });

  const lengths = (head: number, body: number) => {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32LE(head, 0);
    bytes.writeUInt32LE(body, 4);
    return bytes;
  };
  const frame = (head: object, body: string | Buffer = '') => Buffer.concat(encodeFrame(head, [Buffer.from(body)]));
  const events = (sizes: number[], data: Buffer | string) =>
    frame({ kind: 'chunks', key: 1, heads: sizes.map((size) => ['a', 'a', '', size]) }, data);
  test.each<[string, Buffer]>([
    ['a length beyond the limit', lengths(0xffff_ffff, 0)],
    ['data beyond the limit', lengths(2, 0xffff_ffff)],
    ['deep nesting', Buffer.concat([lengths(1_000_000, 0), Buffer.alloc(1_000_000, '[')])],
    [
      'a head of many values',
      frame({
        kind: 'ended',
        key: 1,
        nodes: 0,
        outcome: { kind: 'finished', next: [], interrupts: { task: Array.from({ length: 200_000 }, () => ({})) } },
      }),
    ],
    ['a kind of the prototype', frame({ kind: 'constructor' })],
    ['a message of the Node IPC protocol', frame({ type: 'ready' })],
    ['null', Buffer.concat([lengths(4, 0), Buffer.from('null')])],
    ['an outcome of unknown kind', frame({ kind: 'ended', key: 1, nodes: 0, outcome: { kind: 'won' } })],
    [
      'a run reported lost by its worker',
      frame({ kind: 'ended', key: 1, nodes: 0, outcome: { kind: 'lost', cause: 'worker', message: '' } }),
    ],
    [
      'a state that is not JSON',
      frame({ kind: 'ended', key: 1, nodes: 0, outcome: { kind: 'finished', next: [], interrupts: {} } }, '{'),
    ],
    [
      'an interrupt that is none, under a key with a line break',
      frame({
        ...{ kind: 'ended', key: 1, nodes: 0 },
        outcome: { kind: 'failed', error: 'e', message: 'm', hasValues: false, interrupts: { 'a\n': 5 } },
      }),
    ],
    ['a negative number of nodes', frame({ kind: 'ended', key: 1, nodes: -1, outcome: { kind: 'fenced' } })],
    ['a huge number of nodes', frame({ kind: 'ended', key: 1, nodes: 2 ** 52, outcome: { kind: 'fenced' } })],
    ['an unknown error code', frame({ kind: 'unusable', error: { code: 'toString', params: {} } })],
    ['a negative key', frame({ kind: 'response', key: -1 }, '{}')],
    ['no event', events([], '')],
    ['a negative size', events([-1], '')],
    ['a size beyond the data', events([0xffff_ffff], '1')],
    ['an event that is too large', events([maxEventBytes + 1], '1'.repeat(maxEventBytes + 1))],
    ['an event without its data', events([1, 1], '1')],
    ['more data than the events declare', events([1], '11')],
    ['an event that is not JSON', events([1], '{')],
    ['an event of two lines', events([3], '[\n]')],
    ['a name of two lines', frame({ kind: 'chunks', key: 1, heads: [['a', 'a\nb', '', 1]] }, '1')],
    [
      'more traced runs than a tracer reports at once',
      frame({
        ...{ kind: 'traced', key: 1, droppedRuns: 0, droppedValues: 0 },
        runs: Array.from({ length: 1_001 }, () => ({ kind: 'post', runId: 'r', open: true, sizes: [0, 0, 0] })),
      }),
    ],
    [
      'traced runs without their text',
      frame({
        kind: 'traced',
        key: 1,
        droppedRuns: 0,
        droppedValues: 0,
        runs: [{ kind: 'post', runId: 'r', open: true, sizes: [1, 0xffff_ffff, 0] }],
      }),
    ],
  ])('%s', (_, bytes) => {
    expect(isViolation(() => read(bytes))).toBe(true);
  });
});

test('refuses a head of many tiny values before it is parsed', () => {
  const [before, after] = JSON.stringify({
    ...{ kind: 'ended', key: 1 },
    outcome: { kind: 'finished', next: [], interrupts: { task: ['HERE'] } },
  }).split('"HERE"') as [string, string];
  const head = Buffer.from(`${before}${'{},'.repeat(10_000_000)}{}${after}`);
  const lengths = Buffer.alloc(8);
  lengths.writeUInt32LE(head.byteLength, 0);
  const beganMs = performance.now();
  expect(isViolation(() => read(Buffer.concat([lengths, head])))).toBe(true);
  // Parsing takes several seconds.
  expect(performance.now() - beganMs).toBeLessThan(2_000);
});

test('accepts large interrupts of few values, with any characters', () => {
  const value = 'a,[{"\\'.repeat(1_000_000);
  const message: MessageFromWorker = {
    kind: 'ended',
    key: 1,
    nodes: 1,
    outcome: { kind: 'finished', values: '{}', next: ['node'], interrupts: { task: [{ id: 'i', value }] } },
  };
  const bytes = written([message]);
  expect(read(bytes)).toEqual([message]);
});
