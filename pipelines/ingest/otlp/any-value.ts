import { detectEmbeddedJson, isEmbeddedJson } from './json-text.ts';
import { requireElementCapacity } from './part-limit.ts';
import type { ProtobufReader } from './protobuf.ts';
import { AttributeList } from './span.ts';
import type { SpanContext } from './span-context.ts';

/** Returns the text of a string attribute; returns undefined for other kinds of values. */
export function readText(context: SpanContext, index: number): string | undefined {
  const value = readAttributeHead(context, index);
  return value.kind === 'string' ? context.text(value.start, value.end) : undefined;
}

/**
 * Returns the text of the first attribute with the given role, if the text is a non-empty string, and marks the
 * attribute as taken.
 */
export function consumeText(
  context: SpanContext,
  role: Parameters<SpanContext['span']['find']>[0],
): string | undefined {
  const index = context.span.find(role);
  if (index < 0) return undefined;
  const text = readText(context, index);
  if (text === undefined || text === '') return undefined;
  context.span.take(index);
  return text;
}

/** Reads a boolean from a boolean attribute or from text. */
export function readFlag(context: SpanContext, index: number): boolean {
  const value = readAttributeHead(context, index);
  if (value.kind === 'bool') return value.number === 1;
  return value.kind === 'string' && context.text(value.start, value.end).toLowerCase() === 'true';
}

/** Reads a non-negative number from an integer, a double or text; returns undefined for any other value. */
export function readNumber(context: SpanContext, index: number): number | undefined {
  const value = readAttributeHead(context, index);
  let number: number;
  if (value.kind === 'int') number = value.high * 0x1_0000_0000 + value.low;
  else if (value.kind === 'double') number = value.number;
  else if (value.kind === 'string' && value.end - value.start < 32 && value.end > value.start) {
    number = Number(context.text(value.start, value.end));
  } else return undefined;
  return number >= 0 && number <= Number.MAX_SAFE_INTEGER ? number : undefined;
}

export function readAttributeHead(context: SpanContext, index: number) {
  const { attributes } = context.span;
  return readValueHead(context.reader, attributes.valueStarts[index]!, attributes.valueEnds[index]!);
}

export type ValueKind = 'absent' | 'string' | 'bool' | 'int' | 'double' | 'array' | 'list' | 'bytes';

/**
 * The kind of an AnyValue, with the range or the value of its content. If a message sets several fields of the oneof,
 * the last one wins. Source: opentelemetry/proto/common/v1/common.proto.
 */
export interface ValueHead {
  kind: ValueKind;
  start: number;
  end: number;
  low: number;
  high: number;
  number: number;
}

const sharedHead: ValueHead = { kind: 'absent', start: 0, end: 0, low: 0, high: 0, number: 0 };

/** Reads the AnyValue in `[start, end)`. Returns a shared object that is valid until the next call. */
export function readValueHead(reader: ProtobufReader, start: number, end: number): Readonly<ValueHead> {
  sharedHead.kind = 'absent';
  reader.seek(start, end);
  while (reader.more) {
    const tag = reader.tag();
    switch (tag) {
      case 0x0a:
        readDelimited(reader, 'string');
        break;
      case 0x10:
        reader.varint64();
        sharedHead.kind = 'bool';
        sharedHead.number = reader.low !== 0 || reader.high !== 0 ? 1 : 0;
        break;
      case 0x18:
        reader.varint64();
        sharedHead.kind = 'int';
        sharedHead.low = reader.low;
        sharedHead.high = reader.high;
        break;
      case 0x21:
        sharedHead.number = reader.double();
        sharedHead.kind = 'double';
        break;
      case 0x2a:
        readDelimited(reader, 'array');
        break;
      case 0x32:
        readDelimited(reader, 'list');
        break;
      case 0x3a:
        readDelimited(reader, 'bytes');
        break;
      default:
        reader.skip(tag);
    }
  }
  return sharedHead;
}

function readDelimited(reader: ProtobufReader, kind: ValueKind): void {
  sharedHead.start = reader.delimited();
  sharedHead.end = reader.position;
  sharedHead.kind = kind;
}

/**
 * Writes an AnyValue as JSON: integers with all their digits, NaN and infinities as strings, bytes in base64, absent
 * values as null. `depth` is the number of levels above the value. If a value is nested deeper than the limit, the span
 * is rejected.
 */
export function writeValue(context: SpanContext, start: number, end: number, depth = 0): void {
  const { reader, out } = context;
  const value = readValueHead(reader, start, end);
  switch (value.kind) {
    case 'string':
      context.writeString(value.start, value.end);
      return;
    case 'bool':
      out.ascii(value.number === 1 ? 'true' : 'false');
      return;
    case 'int':
      out.int64(value.low, value.high);
      return;
    case 'double':
      out.double(value.number);
      return;
    case 'bytes':
      out.ascii(`"${reader.source.toString('base64', value.start, value.end)}"`);
      return;
    case 'absent':
      out.ascii('null');
      return;
    case 'array':
      writeArray(context, value.start, value.end, depth + 1);
      return;
    case 'list':
      writeList(context, value.start, value.end, depth + 1);
      return;
  }
}

/**
 * Like {@link writeValue}, but if a string contains a JSON object or array, writes that object or array instead of the
 * string.
 */
export function writeUnwrappedValue(context: SpanContext, start: number, end: number): void {
  const { source } = context.reader;
  const value = readValueHead(context.reader, start, end);
  if (value.kind === 'string' || value.kind === 'bytes') {
    if (detectEmbeddedJson(source, value.start, value.end, context.maxJsonDepth) !== undefined) {
      context.out.copy(source, value.start, value.end);
      return;
    }
  }
  writeValue(context, start, end);
}

/** Writes the value of an attribute, and marks the attribute as taken. */
export function consumeValue(context: SpanContext, index: number, write = writeUnwrappedValue): void {
  const { attributes } = context.span;
  write(context, attributes.valueStarts[index]!, attributes.valueEnds[index]!);
  context.span.take(index);
}

/** Like {@link writeValue}, but writes the JSON in a string, and in the strings of an array, instead of the string. */
export function writeJsonTexts(context: SpanContext, start: number, end: number, depth = 0): void {
  const { reader, out } = context;
  const value = readValueHead(reader, start, end);
  if (value.kind === 'array') writeArray(context, value.start, value.end, depth + 1, writeJsonTexts);
  else if (value.kind === 'string' && isEmbeddedJson(reader.source, value.start, value.end, context.maxJsonDepth)) {
    out.copy(reader.source, value.start, value.end);
  } else writeValue(context, start, end, depth);
}

function writeArray(context: SpanContext, start: number, end: number, depth: number, writeElement = writeValue): void {
  const { reader, out } = context;
  if (depth > context.maxDepth) {
    rejectTooDeep(context);
    return;
  }
  out.byte(0x5b);
  let count = 0;
  for (let at = start; at < end; ) {
    reader.seek(at, end);
    const tag = reader.tag();
    if (tag !== 0x0a) reader.skip(tag);
    else {
      const from = reader.delimited();
      const to = reader.position;
      reader.details.add();
      requireElementCapacity(count);
      if (count > 0) out.byte(0x2c);
      count++;
      writeElement(context, from, to, depth);
      at = to;
      continue;
    }
    at = reader.position;
  }
  out.byte(0x5d);
}

function writeList(context: SpanContext, start: number, end: number, depth: number): void {
  if (depth > context.maxDepth) {
    rejectTooDeep(context);
    return;
  }
  writeObject(context, readAttributes(context.reader, start, end, 0x0a), depth);
}

/** Reads the repeated KeyValue field with the tag `attributeTag` from the message in `[start, end)`. */
export function readAttributes(
  reader: ProtobufReader,
  start: number,
  end: number,
  attributeTag: number,
): AttributeList {
  const attributes = new AttributeList();
  for (let at = start; at < end; ) {
    reader.seek(at, end);
    const tag = reader.tag();
    if (tag === attributeTag) {
      const from = reader.delimited();
      at = reader.position;
      attributes.add(reader, from, at);
    } else {
      reader.skip(tag);
      at = reader.position;
    }
  }
  return attributes;
}

export function writeObject(context: SpanContext, attributes: AttributeList, depth = 0): void {
  const { out } = context;
  out.byte(0x7b);
  for (let index = 0; index < attributes.count; index++) {
    if (index > 0) out.byte(0x2c);
    context.writeString(attributes.keyStarts[index]!, attributes.keyEnds[index]!);
    out.byte(0x3a);
    writeValue(context, attributes.valueStarts[index]!, attributes.valueEnds[index]!, depth);
  }
  out.byte(0x7d);
}

function rejectTooDeep(context: SpanContext): void {
  context.reject(`a value is nested deeper than ${context.maxDepth}`);
  context.out.ascii('null');
}
