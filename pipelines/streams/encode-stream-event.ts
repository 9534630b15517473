import type { AvroWriter } from '../../infra/event-log/avro-writer.ts';
import type { StreamEvent } from './stream-event.ts';

/** Partition and offset: the sink knows them, who publishes does not. */
const noPosition = Buffer.alloc(8);

/**
 * Appends `event` as one Avro record of `schemas/avro/stream-event.avsc`.
 * The order of the fields is that of the schema; a test decodes what this writes with the schema itself.
 */
export function encodeStreamEvent(writer: AvroWriter, event: StreamEvent): void {
  writer.ascii(event.organizationId);
  writer.ascii(event.threadId);
  writer.ascii(event.runId);
  writer.raw(noPosition);
  writer.raw(noPosition);
  writer.byte(event.kept ? 1 : 0);
  writer.long(event.expiresAtMicros);
  writer.long(event.createdAtMicros);
  writer.long(event.attempt);
  writer.long(event.seq);
  writer.long(event.threadSeq);
  writer.string(event.mode);
  writer.string(event.event);
  writer.string(event.namespace);
  writer.bytes(event.data);
  writer.byte(event.isEnd ? 1 : 0);
}
