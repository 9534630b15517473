import { describe, expect, it } from 'vitest';
import { encodeStreamEvents } from '../../../pipelines/streams/encode-stream-event.ts';
import fc from '../../house/fast-check.ts';

const prefix = Buffer.from([0, 0, 0, 0, 7]);
const name = fc.constantFrom('', 'values', 'custom', 'messages|a:1', 'é', '\u{1f600}');
const rest = fc.record({
  seq: fc.nat(),
  threadSeq: fc.maxSafeNat().map((value) => Math.floor(value / 4)),
  mode: name,
  event: name,
  namespace: name,
  data: fc.uint8Array({ maxLength: 700 }),
  isEnd: fc.boolean(),
});
const head = fc.record({
  deploymentId: fc.uuid(),
  threadId: fc.uuid(),
  runId: fc.uuid(),
  attempt: fc.integer({ min: 0, max: 1_000 }),
  kept: fc.boolean(),
  createdAtMicros: fc.integer({ min: 1_700_000_000_000_000, max: 2_000_000_000_000_000 }),
  expiresAtMicros: fc.integer({ min: 1_700_000_000_000_000, max: 2_000_000_000_000_000 }),
});

describe('events that are encoded together', () => {
  it('equal each event encoded alone', () => {
    fc.assert(
      fc.property(head, fc.array(rest, { maxLength: 40 }), (shared, events) => {
        const encode = (some: typeof events) =>
          encodeStreamEvents(prefix, shared, some).map((value) => value.toString('hex'));
        expect(encode(events)).toEqual(events.flatMap((event) => encode([event])));
      }),
    );
  });
});
