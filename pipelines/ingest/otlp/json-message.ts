import { isJsonObject, type JsonObject } from '../../../infra/json/json-value.ts';
import { parseKnownMembers } from '../json/parse-known.ts';
import type { JsonRange } from '../json/scan.ts';
import { KeySet } from '../json/scan-any.ts';
import { enforceMemberLimit, requireCapacity } from './part-limit.ts';
import type { ProtobufWriter } from './protobuf.ts';

/**
 * Reads fields of OTLP/JSON messages. Names are in camelCase or spelled as in the .proto file, null means absent,
 * 64-bit integers are strings or numbers, and ids are in hex. `reason` keeps the first error. Source: OTLP
 * specification, "JSON Protobuf Encoding".
 */
export class JsonFields {
  reason: string | undefined;

  reject(name: string, expected: string): undefined {
    this.reason ??= `${name} is not ${expected}`;
  }

  get(object: JsonObject, name: string, protoName = name): unknown {
    return object[name] ?? object[protoName] ?? undefined;
  }

  object(object: JsonObject, name: string, protoName = name): JsonObject | undefined {
    const value = this.get(object, name, protoName);
    if (value === undefined || isJsonObject(value)) return value;
    return this.reject(name, 'an object');
  }

  list(object: JsonObject, name: string): readonly unknown[] {
    const value = this.get(object, name);
    if (Array.isArray(value)) return value;
    if (value !== undefined) this.reject(name, 'a list');
    return [];
  }

  text(object: JsonObject, name: string, protoName = name): string | undefined {
    const value = this.get(object, name, protoName);
    if (value === undefined || typeof value === 'string') return value;
    return this.reject(name, 'a string');
  }

  id(object: JsonObject, name: string, protoName: string): Buffer | undefined {
    const value = this.text(object, name, protoName);
    if (value === undefined || value === '') return undefined;
    if (value.length % 2 === 0 && /^[0-9a-f]+$/i.test(value)) return Buffer.from(value, 'hex');
    return this.reject(name, 'hex');
  }

  /** Returns an integer of at most 32 bits; 0 if the field is absent. */
  uint32(object: JsonObject, name: string, protoName = name): number {
    const value = this.get(object, name, protoName);
    if (value === undefined) return 0;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffff_ffff) return value;
    this.reject(name, 'a whole number');
    return 0;
  }

  integer(value: unknown, name: string, min: bigint, max: bigint): bigint | undefined {
    let integer = typeof value === 'bigint' ? value : undefined;
    if (typeof value === 'number' && Number.isInteger(value)) integer = BigInt(value);
    if (typeof value === 'string' && /^-?\d{1,20}$/.test(value)) integer = BigInt(value);
    if (integer !== undefined && integer >= min && integer <= max) return integer;
    return this.reject(name, 'a 64-bit integer');
  }
}

/** Known fields of Resource, InstrumentationScope and Span, and of the messages in them. */
const fieldNames = [
  'traceId',
  'spanId',
  'traceState',
  'parentSpanId',
  'name',
  'version',
  'kind',
  'startTimeUnixNano',
  'endTimeUnixNano',
  'attributes',
  'droppedAttributesCount',
  'events',
  'droppedEventsCount',
  'links',
  'droppedLinksCount',
  'status',
  'flags',
  'timeUnixNano',
  'message',
  'code',
  'key',
  'value',
  'values',
  'stringValue',
  'boolValue',
  'intValue',
  'doubleValue',
  'bytesValue',
  'arrayValue',
  'kvlistValue',
];

/** Each name in both forms that the JSON encoding of protobuf allows. */
const knownKeys = new KeySet([...new Set(fieldNames.flatMap((name) => [name, toProtoName(name)]))]);

/**
 * Maximum number of JSON levels for each level of an attribute value, and number of JSON levels of the messages around
 * the values.
 */
const levelsPerValue = 5;
const envelopeLevels = 16;

/** Parses the known fields of the validated message at `range`. @throws TOO_MANY_PARTS */
export function parseMessage(
  body: Buffer,
  range: JsonRange | undefined,
  valueDepth: number,
  maxParts: number,
): JsonObject {
  if (range === undefined) return {};
  const maxDepth = computeJsonDepth(valueDepth);
  const onMember = (count: number) => enforceMemberLimit(count, maxParts);
  return parseKnownMembers(body, range.start, range.end, knownKeys, { maxDepth, onMember }) as JsonObject;
}

/**
 * Returns the maximum nesting depth of the JSON of a request whose attribute values are nested `valueDepth` levels
 * deep.
 */
export function computeJsonDepth(valueDepth: number): number {
  return valueDepth * levelsPerValue + envelopeLevels;
}

/** Converts a name to its form in the .proto file: `startTimeUnixNano` becomes `start_time_unix_nano`. */
export function toProtoName(name: string): string {
  return name.replace(/[A-Z]/g, (character) => `_${character.toLowerCase()}`);
}

const minInt64 = -(2n ** 63n);
const maxInt64 = 2n ** 63n - 1n;

/** Writes the `attributes` of an OTLP/JSON message as repeated KeyValue fields with the tag `tag`. */
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
    if (!isJsonObject(entry)) {
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

/** Writes the content of an AnyValue; an object without a known field is written as an absent value. */
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
  if (isJsonObject(element)) writeMessage(writer, 0x0a, fields, element, depthLeft);
  else if (element === null) writer.data(0x0a, Buffer.alloc(0));
  else fields.reject('an element of arrayValue', 'an object');
}

/** Writes a double that is given as a number, as text, or as a name for NaN or infinity. */
function writeDouble(writer: ProtobufWriter, fields: JsonFields, value: unknown): void {
  const isConvertible = typeof value === 'bigint' || (typeof value === 'string' && value.trim() !== '');
  const double = isConvertible ? Number(value) : value;
  if (typeof double !== 'number' || (Number.isNaN(double) && value !== 'NaN')) {
    fields.reject('doubleValue', 'a number');
    return;
  }
  writer.double(0x21, double);
}
