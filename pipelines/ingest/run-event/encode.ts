import { optionalBytes, optionalLong, optionalString } from '../../../infra/event-log/avro-optional.ts';
import type { AvroWriter } from '../../../infra/event-log/avro-writer.ts';
import type { RunEvent, RunValues } from './run-event.ts';

/**
 * Appends `event` as one Avro record of `schemas/avro/run-event.avsc`, with the fields in the order of the schema. A
 * test decodes the result with the schema.
 */
export function encodeRunEvent(writer: AvroWriter, event: RunEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.traceId);
  writer.ascii(event.runId);
  writer.ascii(event.projectId);
  writer.long(event.startTimeMicros);
  writer.long(event.traceTimeMicros);
  writer.long(event.receivedAtMicros);
  writer.ascii(event.userId);
  writer.ascii(event.keyId);
  optionalString(writer, event.dottedOrder);
  optionalLong(writer, event.deletedAtMicros);
  if (event.kind === 'post') {
    encodeValues(writer, event.values);
    encodeNothing(writer);
  } else {
    encodeNothing(writer);
    encodeValues(writer, event.values);
  }
}

const valuesPerEvent = 22;

function encodeNothing(writer: AvroWriter): void {
  for (let field = 0; field < valuesPerEvent; field++) writer.byte(0);
}

function encodeValues(writer: AvroWriter, values: RunValues): void {
  optionalString(writer, values.name);
  optionalString(writer, values.runType);
  optionalLong(writer, values.startedAtMicros);
  optionalLong(writer, values.endedAtMicros);
  optionalString(writer, values.parentRunId);
  optionalString(writer, values.referenceExampleId);
  optionalBytes(writer, values.tags);
  optionalBytes(writer, values.inputs);
  optionalBytes(writer, values.outputs);
  optionalBytes(writer, values.error);
  optionalBytes(writer, values.events);
  optionalBytes(writer, values.extra);
  optionalBytes(writer, values.serialized);
  optionalLong(writer, values.promptTokens);
  optionalLong(writer, values.completionTokens);
  optionalLong(writer, values.totalTokens);
  optionalString(writer, values.promptCost);
  optionalString(writer, values.completionCost);
  optionalString(writer, values.totalCost);
  optionalBytes(writer, values.usageDetails);
  optionalLong(writer, values.firstTokenTimeMicros);
  optionalLong(writer, jsonBytes(values));
}

/** Total size of the JSON columns, which exports use to size their slices. */
function jsonBytes({ inputs, outputs, error, events, extra, serialized }: RunValues): number {
  return (
    (inputs?.length ?? 0) +
    (outputs?.length ?? 0) +
    (error?.length ?? 0) +
    (events?.length ?? 0) +
    (extra?.length ?? 0) +
    (serialized?.length ?? 0)
  );
}
