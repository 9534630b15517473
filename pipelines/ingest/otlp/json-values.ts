import { isObject, type JsonFields, type JsonObject } from './json-fields.ts';
import { requireCapacity } from './part-limit.ts';
import type { ProtobufWriter } from './protobuf-writer.ts';

const minInt64 = -(2n ** 63n);
const maxInt64 = 2n ** 63n - 1n;

/** Writes the `attributes` of an OTLP/JSON message as repeated KeyValue under `tag`. */
export function writeKeyValues(
  writer: ProtobufWriter,
  tag: number,
  fields: JsonFields,
  object: JsonObject,
  maxDepth: number,
): void {
  writeEntries(writer, tag, fields, fields.list(object, 'attributes'), maxDepth);
}

function writeEntries(
  writer: ProtobufWriter,
  tag: number,
  fields: JsonFields,
  entries: readonly unknown[],
  depthLeft: number,
): void {
  requireCapacity(entries.length - 1);
  for (const entry of entries) {
    if (!isObject(entry)) {
      fields.reject('an attribute', 'an object');
      return;
    }
    const outer = writer.begin(tag);
    const key = fields.text(entry, 'key');
    if (key !== undefined) writer.text(0x0a, key);
    const value = fields.object(entry, 'value');
    if (value !== undefined) writeMessage(writer, 0x12, fields, value, depthLeft);
    writer.end(outer);
  }
}

function writeMessage(
  writer: ProtobufWriter,
  tag: number,
  fields: JsonFields,
  value: JsonObject,
  depthLeft: number,
): void {
  const mark = writer.begin(tag);
  writeAnyValue(writer, fields, value, depthLeft);
  writer.end(mark);
}

/** Writes the content of an AnyValue; an object without a known field is the absent value. */
function writeAnyValue(writer: ProtobufWriter, fields: JsonFields, value: JsonObject, depthLeft: number): void {
  const text = fields.text(value, 'stringValue', 'string_value');
  const bool = fields.get(value, 'boolValue', 'bool_value');
  const int = fields.get(value, 'intValue', 'int_value');
  const double = fields.get(value, 'doubleValue', 'double_value');
  const bytes = fields.text(value, 'bytesValue', 'bytes_value');
  if (text !== undefined) writer.text(0x0a, text);
  else if (typeof bool === 'boolean') writer.varint(0x10, bool ? 1n : 0n);
  else if (bool !== undefined) fields.reject('boolValue', 'a boolean');
  else if (int !== undefined) writer.varint(0x18, fields.integer(int, 'intValue', minInt64, maxInt64) ?? 0n);
  else if (double !== undefined) writeDouble(writer, fields, double);
  else if (bytes !== undefined) writer.data(0x3a, Buffer.from(bytes, 'base64'));
  else writeNested(writer, fields, value, depthLeft);
}

function writeNested(writer: ProtobufWriter, fields: JsonFields, value: JsonObject, depthLeft: number): void {
  const array = fields.object(value, 'arrayValue', 'array_value');
  const list = array ?? fields.object(value, 'kvlistValue', 'kvlist_value');
  if (list === undefined) return;
  const mark = writer.begin(array === undefined ? 0x32 : 0x2a);
  // The first level beyond the depth limit is written without values; the mapping then rejects it, as it does for
  // protobuf.
  const values = depthLeft < 1 ? [] : fields.list(list, 'values');
  if (array === undefined) writeEntries(writer, 0x0a, fields, values, depthLeft - 1);
  else for (const one of values) writeElement(writer, fields, one, depthLeft - 1);
  writer.end(mark);
}

function writeElement(writer: ProtobufWriter, fields: JsonFields, element: unknown, depthLeft: number): void {
  if (isObject(element)) writeMessage(writer, 0x0a, fields, element, depthLeft);
  else if (element === null) writer.data(0x0a, Buffer.alloc(0));
  else fields.reject('an element of arrayValue', 'an object');
}

/** Writes a double, given as a number, as text, or as one of the names of NaN and the infinities. */
function writeDouble(writer: ProtobufWriter, fields: JsonFields, value: unknown): void {
  const isWritten = typeof value === 'bigint' || (typeof value === 'string' && value.trim() !== '');
  const double = isWritten ? Number(value) : value;
  if (typeof double !== 'number' || (Number.isNaN(double) && value !== 'NaN')) {
    fields.reject('doubleValue', 'a number');
    return;
  }
  writer.double(0x21, double);
}
