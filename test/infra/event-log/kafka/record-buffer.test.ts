import { expect, test } from 'vitest';
import { buildDeadLetterMessage } from '../../../../infra/event-log/kafka/dead-letter-queue.ts';
import { RecordBuffer, toKafkaRecord } from '../../../../infra/event-log/kafka/record-buffer.ts';

const records = (first: number, last: number, bytes = 10) =>
  Array.from({ length: last - first + 1 }, (_, index) =>
    toKafkaRecord(0, {
      key: null,
      value: Buffer.alloc(bytes),
      offset: String(first + index),
      timestamp: '0',
      attributes: 0,
      headers: {},
    }),
  );
const listOffsets = (taken: readonly { offset: number }[] | undefined) => taken?.map(({ offset }) => offset);

test('buffers a redelivered record once', () => {
  const buffer = new RecordBuffer();
  buffer.begin(2);
  buffer.add(records(0, 5));
  buffer.add(records(4, 7));
  expect(listOffsets(buffer.take({ rows: 100, bytes: 10_000 }))).toEqual([2, 3, 4, 5, 6, 7]);
  expect(buffer.nextOffset).toBe(8);
  expect(buffer.bytes).toBe(0);
});

test.each([
  ['rows', { rows: 2, bytes: 10_000 }, [0, 1]],
  ['bytes', { rows: 100, bytes: 35 }, [0, 1, 2]],
  ['a record over the byte limit is a batch by itself', { rows: 100, bytes: 5 }, [0]],
])('a batch is bounded: %s', (_what, limits, expected) => {
  const buffer = new RecordBuffer();
  buffer.add(records(0, 9));
  expect(listOffsets(buffer.take(limits))).toEqual(expected);
});

test('drops records before the starting offset, including buffered ones', () => {
  const buffer = new RecordBuffer();
  buffer.add(records(0, 9));
  const before = buffer.bytes;
  buffer.begin(8);
  expect(listOffsets(buffer.take({ rows: 100, bytes: 10_000 }))).toEqual([8, 9]);
  expect(buffer.bytes).toBeLessThan(before);
});

test('accepts a record without a value or with a binary key and header', () => {
  const raw = { headers: { a: Buffer.from([0xff]), b: [Buffer.from('1'), Buffer.from('2')], c: undefined } };
  const record = toKafkaRecord(3, {
    key: Buffer.from([0xff]),
    value: null,
    offset: '7',
    timestamp: '0',
    attributes: 0,
    ...raw,
  });
  expect(record).toMatchObject({ partition: 3, offset: 7, value: Buffer.alloc(0), headers: { b: '2' } });
  expect(record.raw.key).toEqual(Buffer.from([0xff]));
});

test('accepts headers without a value, and replaces characters that Postgres cannot store', () => {
  // The client returns null for a header without a value.
  const empty = null as unknown as undefined;
  const headers = { empty, list: [Buffer.from('1'), empty as unknown as Buffer], 'n\0': Buffer.from('a\0b') };
  const message = { key: null, value: null, offset: '7', timestamp: '0', attributes: 0, headers };
  const record = toKafkaRecord(3, message);
  expect(record.headers).toEqual({ 'n\ufffd': 'a\ufffdb' });
  // The client cannot send null.
  expect(buildDeadLetterMessage('events', record, 'reason', 'walk').headers).toMatchObject({
    empty: '',
    list: [Buffer.from('1'), ''],
    'n\0': Buffer.from('a\0b'),
  });
});

test.each(['-1', '1796000000000000', '9223372036854775807'])('a record with the time %s has a version', (timestamp) => {
  const { version } = toKafkaRecord(0, { key: null, value: null, offset: '7', timestamp, attributes: 0, headers: {} });
  expect(version >= 0n && version < 2n ** 63n).toBe(true);
});
