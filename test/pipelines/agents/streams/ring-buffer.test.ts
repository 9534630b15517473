import { expect, test } from 'vitest';
import { buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import { type BufferedRecord, RecordRingBuffer } from '../../../../pipelines/agents/streams/ring-buffer.ts';
import { encodeStreamEvents } from '../../../../pipelines/streams/encode-stream-event.ts';

const uuid = (digit: number) => `018f0000-0000-7000-8000-00000000000${digit}`;
const run = { deploymentId: uuid(1), threadId: uuid(2), runId: uuid(3), attempt: 1 };

test('a record does not keep the response in memory from which it was fetched', () => {
  const ring = new RecordRingBuffer({ bytes: 64 * 1024 * 1024, ageMs: 150_000, runs: 100 });
  const cursor = ring.attach(
    'k',
    () => true,
    () => undefined,
  );
  const [value] = encodeStreamEvents(
    buildWirePrefix(1),
    { ...run, kept: true, createdAtMicros: 1, expiresAtMicros: 2 },
    [
      {
        ...{ seq: 1, threadSeq: 1, mode: 'custom', event: 'custom', namespace: '' },
        ...{ data: Buffer.alloc(10_000, '1'), isEnd: false },
      },
    ],
  ) as [Buffer];
  for (let offset = 0; offset < 20; offset += 1) {
    // kafkajs returns each value as a slice of the whole response.
    const response = Buffer.alloc(1024 * 1024);
    response.set(value, 1_000);
    const slice = response.subarray(1_000, 1_000 + value.length);
    ring.add([{ key: 'k', value: slice, partition: 0, offset, version: '', headers: {} } as never]);
  }
  const held = new Set<ArrayBufferLike>();
  for (let record: BufferedRecord | undefined = cursor.next; record; record = record.next) {
    expect(record.value.equals(value)).toBe(true);
    held.add(record.value.buffer);
  }
  expect(held.size).toBe(20);
  const heldBytes = [...held].reduce((sum, { byteLength }) => sum + byteLength, 0);
  expect(heldBytes).toBeLessThanOrEqual(2 * ring.bytes);
});
