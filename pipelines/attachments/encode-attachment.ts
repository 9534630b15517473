import type { AvroWriter } from '../../infra/event-log/avro-writer.ts';

/** One attachment, whole. Workspace, run and name are its identity: of several events the one received last counts. */
export interface AttachmentEvent {
  readonly tenantId: string;
  readonly runId: string;
  readonly name: string;
  readonly receivedAtMicros: number;
  readonly mimeType: string;
  readonly content: Uint8Array;
}

/**
 * Appends `event` as one Avro record of `schemas/avro/attachment-event.avsc`.
 * The order of the fields is that of the schema; a test decodes what this writes with the schema itself.
 */
export function encodeAttachment(writer: AvroWriter, event: AttachmentEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.runId);
  writer.string(event.name);
  writer.long(event.receivedAtMicros);
  writer.string(event.mimeType);
  writer.bytes(event.content);
}
