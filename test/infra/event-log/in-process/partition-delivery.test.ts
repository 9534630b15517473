import { expect, test } from 'vitest';
import { PartitionDelivery } from '../../../../infra/event-log/in-process/partition-delivery.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { logger } from '../../../silent-logger.ts';
import { until } from '../../until.ts';

/** Events of a request, each with a value of ten bytes. */
function request(firstOffset: number, count: number, onStored: () => void) {
  const records = Array.from({ length: count }, (_, index) => ({
    ...{ partition: 0, offset: firstOffset + index, key: 'key', value: Buffer.alloc(10), headers: {}, version: 1n },
  }));
  return { records, bytes: 10 * count, onStored };
}

function startDelivery(limits: { rows: number; bytes: number }) {
  const batches: number[][] = [];
  const reports: string[] = [];
  let failures = 0;
  const delivery = new PartitionDelivery({
    partition: 0,
    logger,
    onProgress: () => {},
  });
  delivery.subscribe({
    topic: runEvents,
    group: 'test',
    limits,
    async handle({ records }) {
      if (failures-- > 0) throw new Error('not now');
      batches.push(records.map(({ offset }) => offset));
    },
  });
  return {
    ...{ delivery, batches, reports },
    add: (name: string, first: number, count: number) =>
      delivery.add(request(first, count, () => reports.push(`${name} after ${batches.length}`))),
    failNext: () => {
      failures = 1;
    },
  };
}

test.each([
  ['rows', { rows: 4, bytes: 10_000 }],
  ['bytes', { rows: 10_000, bytes: 40 }],
])('divides a request with more %s than the limit, and reports it when all of it is stored', async (_, limits) => {
  const { delivery, batches, reports, add } = startDelivery(limits);
  add('small', 0, 1);
  add('large', 1, 10);
  add('last', 11, 2);
  await until('all events to be stored', () => reports.length === 3);
  expect(batches).toEqual([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]);
  expect(reports).toEqual(['small after 1', 'large after 3', 'last after 4']);
  await delivery.close();
});

test('an event that exceeds the limit of bytes by itself is delivered alone', async () => {
  const { delivery, batches, reports, add } = startDelivery({ rows: 4, bytes: 5 });
  add('large', 0, 3);
  await until('all events to be stored', () => reports.length === 1);
  expect(batches).toEqual([[0], [1], [2]]);
  await delivery.close();
});

test('delivers a part of a request that was rejected again, before the next part', async () => {
  const { delivery, batches, reports, add, failNext } = startDelivery({ rows: 2, bytes: 10_000 });
  failNext();
  add('large', 0, 4);
  await until('all events to be stored', () => reports.length === 1);
  expect(batches).toEqual([
    [0, 1],
    [2, 3],
  ]);
  await delivery.close();
});
