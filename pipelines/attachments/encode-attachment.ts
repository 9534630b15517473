import { type AvroWriter, fieldOffset, writeTimeMicros, writeUuid } from '../../infra/event-log/avro.ts';
import { attachmentEvents } from '../../schemas/topics.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';

/**
 * A complete attachment, identified by workspace, run and name. Of several events with one identity, the last received wins.
 */
export interface AttachmentEvent {
  readonly tenantId: string;
  readonly runId: string;
  readonly name: string;
  readonly receivedAtMicros: number;
  readonly mimeType: string;
  readonly content: Uint8Array;
}

/**
 * Appends `event` as one Avro record of `schemas/avro/attachment-event.avsc`. The fields must be written in the order
 * of the schema; a test decodes the result with the schema.
 */
export function encodeAttachment(writer: AvroWriter, event: AttachmentEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.runId);
  writer.ascii(nilUuid);
  writer.ascii(nilUuid);
  writer.long(event.receivedAtMicros);
  writer.string(event.name);
  writer.long(event.receivedAtMicros);
  writer.string(event.mimeType);
  writer.bytes(event.content);
}

const traceAt = fieldOffset(attachmentEvents, 'trace_id');
const projectAt = fieldOffset(attachmentEvents, 'session_id');
const traceTimeAt = fieldOffset(attachmentEvents, 'trace_time');

/** The trace of a run, as its event states it. */
interface TraceOfRun {
  readonly traceId: string;
  /** The nil UUID if the event names no project. */
  readonly projectId: string;
  readonly traceTimeMicros: number;
}

/** Writes the trace of its run into an encoded attachment, so that the attachment expires with the trace. */
export function writeTraceOfAttachment(framed: Uint8Array, { traceId, projectId, traceTimeMicros }: TraceOfRun): void {
  const value = Buffer.from(framed.buffer, framed.byteOffset, framed.length);
  writeUuid(value, traceAt, traceId);
  writeUuid(value, projectAt, projectId);
  writeTimeMicros(value, traceTimeAt, traceTimeMicros);
}
