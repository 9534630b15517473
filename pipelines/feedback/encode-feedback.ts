import { optionalBoolean, optionalBytes, optionalLong, optionalString } from '../../infra/event-log/avro-optional.ts';
import type { AvroWriter } from '../../infra/event-log/avro-writer.ts';
import type { FeedbackEvent } from './feedback-event.ts';

/**
 * Appends `event` as one Avro record of `schemas/avro/feedback-event.avsc`. The fields must be written in the order of
 * the schema; a test decodes the result with the schema.
 */
export function encodeFeedback(writer: AvroWriter, event: FeedbackEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.runId);
  writer.ascii(event.id);
  writer.long(event.receivedAtMicros);
  optionalString(writer, event.traceId);
  optionalString(writer, event.projectId);
  optionalLong(writer, event.startTimeMicros);
  writer.string(event.key);
  optionalBytes(writer, event.score);
  optionalBytes(writer, event.value);
  optionalBytes(writer, event.comment);
  optionalBytes(writer, event.correction);
  writer.string(event.sourceType);
  optionalBytes(writer, event.source);
  optionalString(writer, event.groupId);
  optionalString(writer, event.comparativeExperimentId);
  optionalBytes(writer, event.extra);
  optionalBoolean(writer, event.error);
  writer.ascii(event.userId);
  writer.long(event.createdAtMicros);
  writer.long(event.modifiedAtMicros);
  optionalLong(writer, event.deletedAtMicros);
}
