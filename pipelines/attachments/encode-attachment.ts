import type { AvroWriter } from '../../infra/event-log/avro.ts';

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
  writer.string(event.name);
  writer.long(event.receivedAtMicros);
  writer.string(event.mimeType);
  writer.bytes(event.content);
}
