import { expect, test } from 'vitest';
import {
  decodeOffsetMetadata,
  encodeOffsetMetadata,
  type OffsetMetadata,
  startingPoint,
} from '../../../../infra/event-log/kafka/offset-metadata.ts';

const salt = () => 'new';
const replay = { salt: 'old', until: 100 };
const anew = (offset: number, because: string, until: number, lostEvents = 0) => ({
  offset,
  because,
  lostEvents,
  replay: { salt: 'new', until },
});

test.each<[string, { committed: number; low: number; high: number; stored?: OffsetMetadata | string }, object]>([
  ['a new group on an empty topic', { committed: -1, low: 0, high: 0 }, { offset: 0, lostEvents: 0 }],
  [
    'a new group on a topic whose events were all deleted',
    { committed: -1, low: 9, high: 9 },
    { offset: 9, lostEvents: 0 },
  ],
  ['events without a committed offset', { committed: -1, low: 3, high: 9 }, anew(3, 'no position', 9)],
  ['no batch in flight', { committed: 5, low: 0, high: 9, stored: { next: 5 } }, { offset: 5, lostEvents: 0 }],
  [
    'consumed up to the log-end offset',
    { committed: 9, low: 0, high: 9, stored: { next: 9 } },
    { offset: 9, lostEvents: 0 },
  ],
  [
    'a batch in flight',
    { committed: 5, low: 0, high: 9, stored: { batch: [5, 7] } },
    { offset: 5, lostEvents: 0, exact: [5, 7] },
  ],
  [
    'a batch in flight during a replay',
    { committed: 5, low: 0, high: 200, stored: { batch: [5, 7], replay } },
    { offset: 5, lostEvents: 0, exact: [5, 7], replay },
  ],
  [
    'in the middle of a replay',
    { committed: 99, low: 0, high: 200, stored: { next: 99, replay } },
    { offset: 99, lostEvents: 0, replay },
  ],
  [
    'a completed replay',
    { committed: 100, low: 0, high: 200, stored: { next: 100, replay } },
    { offset: 100, lostEvents: 0 },
  ],
  ['set by hand', { committed: 5, low: 0, high: 9, stored: '' }, anew(5, 'the metadata of another program', 9)],
  [
    'set by hand to before the log',
    { committed: 1, low: 4, high: 9, stored: '' },
    anew(4, 'the metadata of another program', 9, 3),
  ],
  [
    'metadata of another version',
    { committed: 5, low: 0, high: 9, stored: '{"runlake":2,"next":5}' },
    anew(5, 'the metadata of another program', 9),
  ],
  [
    'metadata for another offset',
    { committed: 5, low: 0, high: 9, stored: { next: 4 } },
    anew(5, 'the metadata of another program', 9),
  ],
  [
    'set by hand to the end',
    { committed: 9, low: 0, high: 9, stored: 'me' },
    { offset: 9, lostEvents: 0, because: 'the metadata of another program' },
  ],
  ['events were deleted', { committed: 2, low: 4, high: 9, stored: { next: 2 } }, anew(4, 'events were deleted', 9, 2)],
  [
    'part of a batch was deleted',
    { committed: 2, low: 4, high: 9, stored: { batch: [2, 6] } },
    anew(4, 'events were deleted', 9, 2),
  ],
  [
    'the topic was recreated',
    { committed: 50, low: 0, high: 9, stored: { next: 50 } },
    anew(0, 'the log is another one', 9),
  ],
  [
    'the topic was recreated and ends before the batch',
    { committed: 5, low: 0, high: 7, stored: { batch: [5, 8] } },
    anew(5, 'the log is another one', 7),
  ],
])('%s', (_what, { stored, ...found }, expected) => {
  const metadata = typeof stored === 'object' ? encodeOffsetMetadata(stored) : stored;
  expect(startingPoint({ ...found, metadata }, salt)).toEqual(expected);
});

test.each<[string, string | null | undefined]>([
  ['nothing', undefined],
  ['null', null],
  ['no JSON', '{'],
  ['another value', '7'],
  ['a list', '[1]'],
  ['a batch that ends before it begins', '{"runlake":1,"batch":[7,5]}'],
  ['a batch of one number', '{"runlake":1,"batch":[7]}'],
  ['a negative offset', '{"runlake":1,"next":-1}'],
  ['a broken number', '{"runlake":1,"next":1.5}'],
])('rejects metadata that is %s', (_what, metadata) => {
  expect(decodeOffsetMetadata(metadata)).toBeUndefined();
});

test('encoded metadata stays within the size limit of Kafka', () => {
  const maxOffset = Number.MAX_SAFE_INTEGER;
  expect(
    encodeOffsetMetadata({ batch: [maxOffset - 1, maxOffset], replay: { salt: 'x'.repeat(12), until: maxOffset } })
      .length,
  ).toBeLessThan(200);
});
