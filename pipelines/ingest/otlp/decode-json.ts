import { isJsonObject, type JsonObject } from '../../../infra/json/json-value.ts';
import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import type { JsonRange } from '../json/scan.ts';
import { findSpans } from './find-spans.ts';
import { JsonFields, parseMessage, writeKeyValues } from './json-message.ts';
import { requireCapacity } from './part-limit.ts';
import { ProtobufWriter } from './protobuf.ts';
import { computeValueDepth } from './span-context.ts';

/** An OTLP/JSON request converted to protobuf, so that the same reader maps both encodings. */
export interface TranscodedRequest {
  readonly body: Buffer;
  /**
   * Reasons why spans could not be converted, by index of the span among all spans. Each of these spans is an empty
   * message in `body`.
   */
  readonly rejectionReasons: ReadonlyMap<number, string>;
}

const maxUint64 = 2n ** 64n - 1n;

/**
 * Converts an ExportTraceServiceRequest from JSON to protobuf. Ignores unknown fields. Creates objects for one span at
 * a time, and only for known fields. If a field of a span has the wrong type, only that span is rejected.
 *
 * @throws INVALID_UTF8, INVALID_JSON, TOO_DEEP; TOO_MANY_PARTS before objects are created; the errors of `addItem`.
 */
export function* decodeJson(
  body: Buffer,
  maxJsonDepth: number,
  maxParts: number,
  addItem?: () => void,
): StepwiseWork<TranscodedRequest> {
  const resources = yield* findSpans(body, maxJsonDepth, maxParts, addItem);
  const maxDepth = computeValueDepth(maxJsonDepth);
  const parse = (range: JsonRange | undefined) => parseMessage(body, range, maxDepth, maxParts);
  const writer = new ProtobufWriter(body.length + 1024);
  const rejectionReasons = new Map<number, string>();
  let index = 0;
  for (const { resource, scopes } of resources) {
    const outer = writer.begin(0x0a);
    const resourceFields = new JsonFields();
    if (resource !== undefined) {
      const mark = writer.begin(0x0a);
      writeKeyValues(writer, 0x0a, resourceFields, parse(resource), maxDepth);
      writer.end(mark);
    }
    for (const { scope, spans } of scopes) {
      const inner = writer.begin(0x12);
      const scopeFields = new JsonFields();
      if (scope !== undefined) writeScope(writer, scopeFields, parse(scope), maxDepth);
      for (const span of spans) {
        const mark = writer.begin(0x12);
        const own = new JsonFields();
        writeSpan(writer, own, parse(span), maxDepth);
        const reason = own.reason ?? scopeFields.reason ?? resourceFields.reason;
        if (reason !== undefined) {
          rejectionReasons.set(index, reason);
          writer.rewind(mark);
        }
        writer.end(mark);
        index++;
        yield;
      }
      writer.end(inner);
      yield;
    }
    writer.end(outer);
    yield;
  }
  return { body: writer.bytes(), rejectionReasons };
}

function writeScope(writer: ProtobufWriter, fields: JsonFields, scope: JsonObject, maxDepth: number): void {
  const mark = writer.begin(0x0a);
  writeText(writer, 0x0a, fields.text(scope, 'name'));
  writeText(writer, 0x12, fields.text(scope, 'version'));
  writeKeyValues(writer, 0x1a, fields, scope, maxDepth);
  writer.end(mark);
}

function writeSpan(writer: ProtobufWriter, fields: JsonFields, span: JsonObject, maxDepth: number): void {
  writeId(writer, 0x0a, fields.id(span, 'traceId', 'trace_id'));
  writeId(writer, 0x12, fields.id(span, 'spanId', 'span_id'));
  writeText(writer, 0x1a, fields.text(span, 'traceState', 'trace_state'));
  writeId(writer, 0x22, fields.id(span, 'parentSpanId', 'parent_span_id'));
  writeText(writer, 0x2a, fields.text(span, 'name'));
  writeCount(writer, 0x30, fields.uint32(span, 'kind'));
  writeTime(writer, 0x39, fields, span, 'startTimeUnixNano', 'start_time_unix_nano');
  writeTime(writer, 0x41, fields, span, 'endTimeUnixNano', 'end_time_unix_nano');
  writeKeyValues(writer, 0x4a, fields, span, maxDepth);
  writeCount(writer, 0x50, fields.uint32(span, 'droppedAttributesCount', 'dropped_attributes_count'));
  for (const event of readNestedMessages(fields, span, 'events')) {
    const mark = writer.begin(0x5a);
    writeTime(writer, 0x09, fields, event, 'timeUnixNano', 'time_unix_nano');
    writeText(writer, 0x12, fields.text(event, 'name'));
    writeKeyValues(writer, 0x1a, fields, event, maxDepth);
    writer.end(mark);
  }
  writeCount(writer, 0x60, fields.uint32(span, 'droppedEventsCount', 'dropped_events_count'));
  for (const link of readNestedMessages(fields, span, 'links')) {
    const mark = writer.begin(0x6a);
    writeId(writer, 0x0a, fields.id(link, 'traceId', 'trace_id'));
    writeId(writer, 0x12, fields.id(link, 'spanId', 'span_id'));
    writeText(writer, 0x1a, fields.text(link, 'traceState', 'trace_state'));
    writeKeyValues(writer, 0x22, fields, link, maxDepth);
    writer.end(mark);
  }
  writeCount(writer, 0x70, fields.uint32(span, 'droppedLinksCount', 'dropped_links_count'));
  const status = fields.object(span, 'status');
  if (status !== undefined) {
    const mark = writer.begin(0x7a);
    writeText(writer, 0x12, fields.text(status, 'message'));
    writeCount(writer, 0x18, fields.uint32(status, 'code'));
    writer.end(mark);
  }
  const flags = fields.uint32(span, 'flags');
  if (flags !== 0) writer.fixed32(0x85, flags);
}

/** Returns the messages in a list field of a span. If an element of the list is not an object, the span is rejected. */
function readNestedMessages(fields: JsonFields, span: JsonObject, name: string): JsonObject[] {
  const list = fields.list(span, name);
  requireCapacity(list.length - 1);
  return list.flatMap((one) => {
    if (isJsonObject(one)) return [one];
    fields.reject(`an element of ${name}`, 'an object');
    return [];
  });
}

function writeText(writer: ProtobufWriter, tag: number, value: string | undefined): void {
  if (value !== undefined && value !== '') writer.text(tag, value);
}

function writeId(writer: ProtobufWriter, tag: number, value: Buffer | undefined): void {
  if (value !== undefined) writer.data(tag, value);
}

function writeCount(writer: ProtobufWriter, tag: number, value: number): void {
  if (value !== 0) writer.varint(tag, BigInt(value));
}

function writeTime(
  writer: ProtobufWriter,
  tag: number,
  fields: JsonFields,
  object: JsonObject,
  name: string,
  protoName: string,
): void {
  const value = fields.get(object, name, protoName);
  if (value === undefined) return;
  const nanos = fields.integer(value, name, 0n, maxUint64);
  if (nanos !== undefined) writer.fixed64(tag, nanos);
}
