import { type AttributeName, type RoleName, readAttributeName } from './attribute-roles.ts';
import { requireCapacity } from './part-limit.ts';
import type { ProtobufReader } from './protobuf.ts';

/** Bytes `[start, end)` of the body. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * A list of attributes with encoded values. The list uses parallel arrays, so that an attribute allocates no object.
 */
export class AttributeList {
  count = 0;
  readonly names: AttributeName[] = [];
  readonly keyStarts: number[] = [];
  readonly keyEnds: number[] = [];
  readonly valueStarts: number[] = [];
  readonly valueEnds: number[] = [];

  clear(): void {
    this.count = 0;
  }

  /** Reads a KeyValue message. @throws INVALID_PROTOBUF, TOO_MANY_PARTS */
  add(reader: ProtobufReader, start: number, end: number): void {
    requireCapacity(this.count);
    reader.details.add();
    reader.seek(start, end);
    let keyStart = start;
    let keyEnd = start;
    let valueStart = start;
    let valueEnd = start;
    while (reader.more) {
      const tag = reader.tag();
      if (tag === 0x0a) {
        keyStart = reader.delimited();
        keyEnd = reader.position;
      } else if (tag === 0x12) {
        valueStart = reader.delimited();
        valueEnd = reader.position;
      } else reader.skip(tag);
    }
    const index = this.count++;
    this.names[index] = readAttributeName(reader.source, keyStart, keyEnd);
    this.keyStarts[index] = keyStart;
    this.keyEnds[index] = keyEnd;
    this.valueStarts[index] = valueStart;
    this.valueEnds[index] = valueEnd;
  }
}

const emptyRange: ByteRange = { start: 0, end: 0 };

/**
 * One decoded Span: the ranges of its fields in the body, the roles of its attributes, and which attributes a field of
 * the run has taken. One object is reused for all spans of a request. Field numbers:
 * opentelemetry/proto/trace/v1/trace.proto.
 */
export class Span {
  traceId = emptyRange;
  spanId = emptyRange;
  parentSpanId = emptyRange;
  traceState = emptyRange;
  name = emptyRange;
  statusMessage = emptyRange;
  kind = 0;
  flags = 0;
  statusCode = 0;
  startLow = 0;
  startHigh = 0;
  endLow = 0;
  endHigh = 0;
  droppedAttributes = 0;
  droppedEvents = 0;
  droppedLinks = 0;
  events: ByteRange[] = [];
  links: ByteRange[] = [];
  readonly attributes = new AttributeList();
  /** For each attribute, by index: whether a field of the run contains it, so that it is not copied to the metadata. */
  readonly taken: boolean[] = [];
  readonly #first = new Map<RoleName, number>();

  /** Returns the index of the first attribute with this role, or -1. */
  find(role: RoleName): number {
    return this.#first.get(role) ?? -1;
  }

  take(index: number): void {
    this.taken[index] = true;
  }

  /** Decodes the Span message in `[start, end)`. @throws INVALID_PROTOBUF, TOO_MANY_PARTS */
  read(reader: ProtobufReader, start: number, end: number): void {
    this.#clear();
    reader.seek(start, end);
    while (reader.more) {
      const tag = reader.tag();
      switch (tag) {
        case 0x0a:
          this.traceId = readRange(reader);
          break;
        case 0x12:
          this.spanId = readRange(reader);
          break;
        case 0x1a:
          this.traceState = readRange(reader);
          break;
        case 0x22:
          this.parentSpanId = readRange(reader);
          break;
        case 0x2a:
          this.name = readRange(reader);
          break;
        case 0x30:
          this.kind = reader.uint32();
          break;
        case 0x39:
          reader.fixed64();
          this.startLow = reader.low;
          this.startHigh = reader.high;
          break;
        case 0x41:
          reader.fixed64();
          this.endLow = reader.low;
          this.endHigh = reader.high;
          break;
        case 0x4a: {
          const at = reader.delimited();
          const next = reader.position;
          this.#addAttribute(reader, at, next);
          reader.seek(next, end);
          break;
        }
        case 0x50:
          this.droppedAttributes = reader.uint32();
          break;
        case 0x5a:
          addRange(this.events, reader);
          break;
        case 0x60:
          this.droppedEvents = reader.uint32();
          break;
        case 0x6a:
          addRange(this.links, reader);
          break;
        case 0x70:
          this.droppedLinks = reader.uint32();
          break;
        case 0x7a: {
          const at = reader.delimited();
          const next = reader.position;
          this.#readStatus(reader, at, next);
          reader.seek(next, end);
          break;
        }
        case 0x85:
          this.flags = reader.fixed32();
          break;
        default:
          reader.skip(tag);
      }
    }
  }

  #addAttribute(reader: ProtobufReader, start: number, end: number): void {
    const index = this.attributes.count;
    this.attributes.add(reader, start, end);
    const { role } = this.attributes.names[index]!.role;
    this.taken[index] = false;
    if (role !== 'none' && !this.#first.has(role)) this.#first.set(role, index);
  }

  #readStatus(reader: ProtobufReader, start: number, end: number): void {
    reader.seek(start, end);
    while (reader.more) {
      const tag = reader.tag();
      if (tag === 0x12) this.statusMessage = readRange(reader);
      else if (tag === 0x18) this.statusCode = reader.uint32();
      else reader.skip(tag);
    }
  }

  #clear(): void {
    this.traceId = emptyRange;
    this.spanId = emptyRange;
    this.parentSpanId = emptyRange;
    this.traceState = emptyRange;
    this.name = emptyRange;
    this.statusMessage = emptyRange;
    this.kind = 0;
    this.flags = 0;
    this.statusCode = 0;
    this.startLow = 0;
    this.startHigh = 0;
    this.endLow = 0;
    this.endHigh = 0;
    this.droppedAttributes = 0;
    this.droppedEvents = 0;
    this.droppedLinks = 0;
    if (this.events.length > 0) this.events = [];
    if (this.links.length > 0) this.links = [];
    this.attributes.clear();
    this.#first.clear();
  }
}

function addRange(ranges: ByteRange[], reader: ProtobufReader): void {
  requireCapacity(ranges.length);
  reader.details.add();
  ranges.push(readRange(reader));
}

function readRange(reader: ProtobufReader): ByteRange {
  const start = reader.delimited();
  return { start, end: reader.position };
}
