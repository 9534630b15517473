import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { dequeueBatch, type GatheringPartition, gather } from '../../../../infra/event-log/in-process/take-batch.ts';

const unit = 256 * 1024;
const limits = { rows: 100, bytes: 64 * unit };

/** Builds a queue from a text in which `a3` is a request of 3 units (of 256 KiB) of organisation `a`. */
function parseQueue(text: string) {
  return text
    .split(' ')
    .filter((name) => name !== '')
    .map((name) => ({ name, tenantId: name.slice(0, 1), rows: 10, bytes: Number(name.slice(1)) * unit }));
}
const namesOf = (queue: readonly { readonly name: string }[]) => queue.map(({ name }) => name).join(' ');

it.each([
  ['the whole queue of one organisation', 'a1 a2 a3', false, 'a1 a2 a3', ''],
  ['up to the byte limit', 'a40 a20 a10', false, 'a40 a20', 'a10'],
  ['up to the row limit', Array(12).fill('a1').join(' '), false, Array(10).fill('a1').join(' '), 'a1 a1'],
  ['a small batch while the log is shared', 'a1 a1 a1 a1 a1 a1', true, 'a1 a1 a1 a1', 'a1 a1'],
  ['one request, however large', 'a70 a1', true, 'a70', 'a1'],
  ['other organisations before a long queue', 'a1 a1 a1 a1 a1 a1 b1 c1', true, 'a1 a1 b1 c1', 'a1 a1 a1 a1'],
  ['the organisation with the fewest bytes next', 'a3 a3 b1 b1 b1', true, 'a3 b1', 'a3 b1 b1'],
  ['many small requests with a large one', 'a3 b0.1 b0.1 b0.1', true, 'a3 b0.1 b0.1 b0.1', ''],
  ['nothing of organisations with a batch in flight', 'a1 b1 a1 c1', true, 'b1', 'a1 a1 c1', 'ac'],
  ['nothing from an empty queue', '', true, '', ''],
])('takes %s', (_what, before, isShared, taken, left, excludedTenantIds = '') => {
  const queue = parseQueue(before);
  expect(namesOf(dequeueBatch(queue, limits, { isShared, excludedTenantIds: new Set(excludedTenantIds) }))).toBe(taken);
  expect(namesOf(queue)).toBe(left);
});

describe('gathering after a batch', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  /** Starts to gather; returns an object that reports whether gathering has ended. */
  function start(partition: GatheringPartition, requests: number, batchMs: number) {
    let hasEnded = false;
    void gather(partition, requests, batchMs).then(() => {
      hasEnded = true;
    });
    return {
      hasEnded: async () => {
        await vi.advanceTimersByTimeAsync(0);
        return hasEnded;
      },
    };
  }

  it.each([
    ['a single sender', [], 1],
    ['requests that all wait already', ['one', 'two'], 2],
  ])('does not wait for %s', async (_what, queue, requests) => {
    expect(await start({ queue }, requests, 1_000).hasEnded()).toBe(true);
  });

  it('ends when the expected requests wait', async () => {
    const partition: GatheringPartition = { queue: ['one'] };
    const { hasEnded } = start(partition, 3, 1_000);
    expect([await hasEnded(), partition.pendingGather?.requests]).toEqual([false, 3]);
    partition.pendingGather?.done();
    expect([await hasEnded(), partition.pendingGather]).toEqual([true, undefined]);
  });

  it.each([
    ['a quarter of the time of the batch', 100, 25],
    ['50 ms', 10_000, 50],
  ])('ends after at most %s', async (_what, batchMs, maxMs) => {
    const { hasEnded } = start({ queue: [] }, 2, batchMs);
    await vi.advanceTimersByTimeAsync(maxMs - 1);
    expect(await hasEnded()).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await hasEnded()).toBe(true);
  });
});
