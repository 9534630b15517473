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

/** The trace of a run, as its event states it. */
interface TraceOfRun {
  readonly traceId: string;
  /** The nil UUID if the event names no project. */
  readonly projectId: string;
  readonly traceTimeMicros: number;
}

const traceHeader = 'runlake-trace';

/** Headers of an attachment whose run is sent in the same request, so that it can expire with its trace. */
export function traceHeaders({ traceId, projectId, traceTimeMicros }: TraceOfRun): Readonly<Record<string, string>> {
  return { [traceHeader]: `${traceId} ${projectId} ${traceTimeMicros}` };
}

/** Reads {@link traceHeaders}; undefined if there are none. */
export function readTraceHeaders(headers: Readonly<Record<string, string>>): TraceOfRun | undefined {
  const [, traceId, projectId, micros] =
    /^([0-9a-f-]{36}) ([0-9a-f-]{36}) (\d{1,16})$/.exec(headers[traceHeader] ?? '') ?? [];
  if (traceId === undefined || projectId === undefined) return undefined;
  return { traceId, projectId, traceTimeMicros: Number(micros) };
}
