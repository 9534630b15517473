import { expect, test } from 'vitest';
import { chooseStartingPoint, hasConsumedUpTo } from '../../../../infra/event-log/kafka/partition-consumer.ts';

const none = 'the group has no committed offset';

test.each<[string, { committed: number; low: number; high: number }, object]>([
  ['a new group on an empty topic', { committed: -1, low: 0, high: 0 }, { offset: 0, reason: none, lostEvents: 0 }],
  [
    'a new group on a topic with events',
    { committed: -1, low: 3, high: 9 },
    { offset: 3, reason: none, lostEvents: 0 },
  ],
  ['a committed offset', { committed: 5, low: 0, high: 9 }, { offset: 5, lostEvents: 0 }],
  ['the log-end offset', { committed: 9, low: 0, high: 9 }, { offset: 9, lostEvents: 0 }],
  [
    'an offset whose events were deleted',
    { committed: 1, low: 4, high: 9 },
    { offset: 4, reason: 'events were deleted', lostEvents: 3 },
  ],
  [
    'an offset that the client has reset, because its events were deleted',
    { committed: -2, low: 4, high: 9 },
    { offset: 4, reason: 'events were deleted', lostEvents: undefined },
  ],
  [
    'an offset after the log-end offset, because the topic was recreated',
    { committed: 7, low: 0, high: 2 },
    { offset: 0, reason: 'the log is another one', lostEvents: 0 },
  ],
])('a partition starts with %s', (_what, found, expected) => {
  expect(chooseStartingPoint(found)).toEqual(expected);
});

test.each<[string, { committed: number; low: number; high: number } | undefined, number, boolean]>([
  ['before the end', { committed: 4, low: 0, high: 9 }, 5, false],
  ['at the end', { committed: 5, low: 0, high: 9 }, 5, true],
  ['whose events up to the end were deleted', { committed: 2, low: 6, high: 9 }, 5, true],
  ['of a topic that was recreated', { committed: 2, low: 0, high: 2 }, 5, true],
  ['without a committed offset', { committed: -1, low: 0, high: 9 }, 5, false],
  ['of an unknown partition', undefined, 5, false],
  ['of an unknown partition that was empty', undefined, 0, true],
])('isPast: a group %s', (_what, found, end, expected) => {
  expect(hasConsumedUpTo(found, end)).toBe(expected);
});
