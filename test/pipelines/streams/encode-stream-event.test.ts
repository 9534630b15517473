import avsc from 'avsc';
import { expect, test } from 'vitest';
import { streamEvents } from '../../../schemas/topics.ts';
import { streamEvent, streamMessage } from './stream-events.ts';

const type = avsc.Type.forSchema(JSON.parse(streamEvents.schema));

test('a stream event becomes a record of the schema with its data unchanged', () => {
  const data = Buffer.from('{ "a":\t"\\ud800", "n": 1e400 }\u0000');
  const event = streamEvent({
    attempt: 3,
    seq: 70_000,
    threadSeq: 2 ** 40,
    mode: 'messages',
    event: 'messages/partial',
    namespace: 'weather:1f|inner:é',
    data,
    isEnd: true,
    kept: false,
    createdAtMicros: 1_767_323_045_123_456,
    expiresAtMicros: 1_767_409_445_123_456,
  });
  const { key, value } = streamMessage(event, { schemaId: () => 7 });
  expect(key).toBe(`${event.deploymentId}:${event.threadId}`);
  expect(value.subarray(0, 5)).toEqual(Buffer.from([0, 0, 0, 0, 7]));
  expect({ ...(type.fromBuffer(value.subarray(5)) as object) }).toEqual({
    organization_id: event.deploymentId,
    thread_id: event.threadId,
    run_id: event.runId,
    log_partition: Buffer.alloc(8),
    log_offset: Buffer.alloc(8),
    kept: false,
    expires_at: 1_767_409_445_123_456,
    created_at: 1_767_323_045_123_456,
    attempt: 3,
    seq: 70_000,
    thread_seq: 2 ** 40,
    mode: 'messages',
    event: 'messages/partial',
    namespace: 'weather:1f|inner:é',
    data,
    is_end: true,
  });
});
