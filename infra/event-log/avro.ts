/**
 * Encodes and reads events. An event is an Avro record in Confluent's wire format: a zero byte, the schema id in four
 * bytes (big-endian), and the record. This file needs no Avro library; `avro-schema.ts` does. Sources: Apache Avro
 * 1.12, "Binary Encoding" and "Object Container Files"; Confluent Schema Registry, "Wire format".
 */
import { type FixedKind, fixedWidthBytes, type Topic } from '../../schemas/topics.ts';
import { runlakeError } from '../errors/runlake-error.ts';

/** Length of the prefix: a zero byte and the schema id. */
export const prefixBytes = 5;

/** Returns the five-byte prefix of records that use the schema `schemaId`. */
export function buildWirePrefix(schemaId: number): Buffer {
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(schemaId, 1);
  return prefix;
}

/** Returns the schema id of a framed record. Returns `undefined` if the value is not in this format. */
export function readSchemaId(value: Buffer): number | undefined {
  return value.length >= prefixBytes && value[0] === 0 ? value.readUInt32BE(1) : undefined;
}

/** Writes primitive values in Avro's binary encoding to a buffer that grows as needed. */
export class AvroWriter {
  #buffer: Buffer;
  #position = 0;

  constructor(initialBytes = 64 * 1024) {
    this.#buffer = Buffer.allocUnsafe(initialBytes);
  }

  get position(): number {
    return this.#position;
  }

  /**
   * Returns a view of the bytes that were written from `start` on. The view is valid until {@link AvroWriter.rewind} is
   * called and further writes overwrite the bytes.
   */
  since(start: number): Buffer {
    return this.#buffer.subarray(start, this.#position);
  }

  /** Discards all bytes after `position`. */
  rewind(position: number): void {
    this.#position = position;
  }

  byte(value: number): void {
    this.#reserve(1);
    this.#buffer[this.#position++] = value;
  }

  /** Writes an integer as a zig-zag varint. The integer must be exactly representable as a double. */
  long(value: number): void {
    this.#reserve(10);
    // Zig-zag doubles the magnitude. A double holds results below 2^52 exactly; times and sizes are far smaller.
    let rest = value >= 0 ? value * 2 : -value * 2 - 1;
    while (rest > 0x7f) {
      this.#buffer[this.#position++] = (rest % 128) | 0x80;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#position++] = rest;
  }

  /** Writes an ASCII string, such as a UUID. */
  ascii(value: string): void {
    this.long(value.length);
    this.#reserve(value.length);
    this.#position += this.#buffer.write(value, this.#position, value.length, 'latin1');
  }

  string(value: string): void {
    const bytes = Buffer.byteLength(value);
    this.long(bytes);
    this.#reserve(bytes);
    this.#position += this.#buffer.write(value, this.#position, bytes, 'utf8');
  }

  bytes(value: Uint8Array): void {
    this.long(value.length);
    this.raw(value);
  }

  /** Writes bytes without a length prefix. */
  raw(value: Uint8Array): void {
    this.#reserve(value.length);
    this.#buffer.set(value, this.#position);
    this.#position += value.length;
  }

  /** Copies the bytes from `start` to `end` to the current position. */
  copyRange(start: number, end: number): void {
    this.#reserve(end - start);
    this.#buffer.copyWithin(this.#position, start, end);
    this.#position += end - start;
  }

  // Fields of type `["null", …]` are written as the branch of the union, followed by the value if it is present.

  optionalString(value: string | undefined): void {
    if (this.#writeBranch(value)) this.string(value);
  }

  optionalLong(value: number | undefined): void {
    if (this.#writeBranch(value)) this.long(value);
  }

  optionalBytes(value: Uint8Array | undefined): void {
    if (this.#writeBranch(value)) this.bytes(value);
  }

  optionalBoolean(value: boolean | undefined): void {
    if (this.#writeBranch(value)) this.byte(value ? 1 : 0);
  }

  /** Writes the branch of a union as a zig-zag varint: 0 for null, and 2 for the second type. */
  #writeBranch<Value>(value: Value | undefined): value is Value {
    this.byte(value === undefined ? 0 : 2);
    return value !== undefined;
  }

  #reserve(bytes: number): void {
    const needed = this.#position + bytes;
    if (needed <= this.#buffer.length) return;
    // The old buffer is left unchanged, because callers may hold views of it.
    const largerBuffer = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
    this.#buffer.copy(largerBuffer, 0, 0, this.#position);
    this.#buffer = largerBuffer;
  }
}

const prefixScratch = Buffer.alloc(100);

/** Encodes integers as zig-zag varints. The result is valid until the next call. */
function encodePrefix(prefix: readonly bigint[]): Buffer {
  let length = 0;
  for (const value of prefix) {
    // Zig-zag doubles the value: `low` has 28 bits and `high` the other 36. A double holds both exactly.
    let low = Number(value & 0x7ffffffn) * 2;
    let high = Number(value >> 27n);
    for (let group = 0; group < 4; group++, low >>>= 7) prefixScratch[length++] = (low & 0x7f) | 0x80;
    for (; high > 0x7f; high = Math.floor(high / 128)) prefixScratch[length++] = (high % 128) | 0x80;
    prefixScratch[length++] = high;
  }
  return prefixScratch.subarray(0, length);
}

const syncMarker = Buffer.from('runlake-avro-1.0');

/**
 * Returns the schema for {@link AvroContainer}. It has an integer field for each name in `prefix`, followed by the
 * fields of `schema`.
 */
export function buildContainerSchema(schema: string, prefix: readonly string[]): string {
  const record = JSON.parse(schema) as { fields: unknown[] };
  return JSON.stringify({ ...record, fields: [...prefix.map((name) => ({ name, type: 'long' })), ...record.fields] });
}

export interface ContainerRecord {
  /** A framed record. */
  readonly value: Buffer;
  /** Integers from 0 to 2^63 - 1 that precede the record. */
  readonly prefix: readonly bigint[];
}

/**
 * Builds an Avro object container with one block per record. All records have the same schema. Each record is preceded
 * by the integers of its prefix. With one block per record, ClickHouse finds the end of a record from the size of the
 * block, so that a damaged record cannot shift the values of the following records. Removes the five-byte wire-format
 * prefix of each record.
 */
export class AvroContainer {
  readonly #writer: AvroWriter;

  /**
   * @param schema from {@link buildContainerSchema}.
   * @param recordBytes The expected size of all records.
   */
  constructor(schema: string, recordBytes: number) {
    const writer = new AvroWriter(64 + schema.length * 2 + recordBytes);
    writer.raw(Buffer.from('Obj\u0001', 'latin1'));
    writer.long(2);
    writer.string('avro.codec');
    writer.string('null');
    writer.string('avro.schema');
    writer.string(schema);
    writer.long(0);
    writer.raw(syncMarker);
    this.#writer = writer;
  }

  /** Adds a copy of a record. */
  add({ value, prefix }: ContainerRecord): void {
    const writer = this.#writer;
    const encodedPrefix = encodePrefix(prefix);
    writer.long(1);
    writer.long(encodedPrefix.length + value.length - prefixBytes);
    writer.raw(encodedPrefix);
    writer.raw(value.subarray(prefixBytes));
    writer.raw(syncMarker);
  }

  /** Returns the container with the records that were added. No record must be added afterwards. */
  finish(): Buffer {
    return this.#writer.since(0);
  }
}

// Fixed-width fields at the start of a framed record (`Topic.fixed`) are read and written in place. Positions are byte
// offsets in the framed value.

/** Accepted range of a time field for each kind of field, in microseconds since 1970. Both ends are inclusive. */
export type TimeBounds = Readonly<Partial<Record<FixedKind, readonly [earliestMicros: number, latestMicros: number]>>>;

/**
 * Returns the byte offset of a field in a framed record of the topic.
 *
 * @throws INTERNAL if the topic does not have the field.
 */
export function getFieldOffset(topic: Topic, name: string): number {
  const field = topic.fixed.find((known) => known.name === name);
  if (field === undefined) throw runlakeError('INTERNAL', {}, { cause: `${topic.name} has no fixed field ${name}` });
  return prefixBytes + field.at;
}

/** Returns the byte offset after the fixed-width fields of a framed record of the topic. */
export function getFixedEnd({ fixed }: Topic): number {
  const last = fixed.at(-1);
  return prefixBytes + (last === undefined ? 0 : last.at + fixedWidthBytes[last.kind]);
}

/** Returns the byte offset after the string at `at`. Returns undefined if the string does not end within the record. */
export function skipString(framed: Buffer, at: number): number | undefined {
  let length = 0;
  let next = at;
  for (let factor = 1; next < framed.length; factor *= 128) {
    const byte = framed[next++] as number;
    length += (byte & 0x7f) * factor;
    if (byte < 0x80) break;
  }
  // The length is a zig-zag varint.
  const end = next + length / 2;
  return end <= framed.length ? end : undefined;
}

/**
 * Returns the reason why the fixed-width fields cannot be read in place or contain an invalid value. Returns undefined
 * if they are valid.
 */
export function findFixedFieldsError(framed: Buffer, topic: Topic, bounds: TimeBounds): string | undefined {
  const { fixed } = topic;
  if (framed.length < getFixedEnd(topic)) {
    return 'the record is shorter than its fields of constant width';
  }
  for (let index = 0; index < fixed.length; index++) {
    const { kind, at } = fixed[index] as (typeof fixed)[number];
    const reason = checks[kind](framed, prefixBytes + at, bounds[kind]);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

type Check = (framed: Buffer, at: number, bounds: TimeBounds[FixedKind]) => string | undefined;

const checks: Readonly<Record<FixedKind, Check>> = {
  uuid: findUuidError,
  key_time: findTimeError,
  expiry: findTimeError,
  time: findTimeError,
  position: () => undefined,
  flag: (framed, at) => ((framed[at] as number) <= 1 ? undefined : 'a flag is neither true nor false'),
};

export function readUuidAt(framed: Buffer, at: number): string {
  return framed.toString('latin1', at + 1, at + 37);
}

/** Value of each lower-case hexadecimal digit, by byte. */
const hexDigitValues = Uint8Array.from({ length: 256 }, (_, byte) =>
  Math.max(0, '0123456789abcdef'.indexOf(String.fromCharCode(byte))),
);
/** Positions, in the text of a UUID, of the first and the second half of each 32-bit word. */
const wordHalfOffsets = [0, 4, 9, 14, 19, 24, 28, 32] as const;

/** Writes the UUID at `at`, which must be valid, as four 32-bit words to `words`, starting at `words[index]`. */
export function copyUuidWords(framed: Buffer, at: number, words: Uint32Array, index: number): void {
  for (let half = 0; half < 8; half++) {
    const from = at + 1 + (wordHalfOffsets[half] as number);
    const bits =
      ((hexDigitValues[framed[from] as number] as number) << 12) |
      ((hexDigitValues[framed[from + 1] as number] as number) << 8) |
      ((hexDigitValues[framed[from + 2] as number] as number) << 4) |
      (hexDigitValues[framed[from + 3] as number] as number);
    const word = index + (half >> 1);
    words[word] = half % 2 === 0 ? bits << 16 : (words[word] as number) | bits;
  }
}

export function writeUuid(framed: Buffer, at: number, uuid: string): void {
  framed.write(uuid, at + 1, 36, 'latin1');
}

export function readFlagAt(framed: Buffer, at: number): boolean {
  return framed[at] === 1;
}

export function readTimeMicrosAt(framed: Buffer, at: number): number {
  let value = 0;
  for (let index = at + 7; index >= at; index--) value = value * 128 + ((framed[index] as number) & 0x7f);
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

export function writeTimeMicros(framed: Buffer, at: number, micros: number): void {
  let rest = micros * 2;
  for (let index = at; index < at + 7; index++) {
    framed[index] = (rest % 128) | 0x80;
    rest = Math.floor(rest / 128);
  }
  framed[at + 7] = rest;
}

/**
 * Writes an integer as an Avro decimal without fraction digits to a `fixed` of eight bytes, in big-endian two's
 * complement.
 */
export function writePosition(framed: Buffer, at: number, position: number): void {
  framed.writeBigInt64BE(BigInt(position), at);
}

/**
 * The earliest key time, in December 1978. From this time until the year 3111, the varint of a time takes eight bytes.
 */
export const earliestKeyTimeMicros = 2 ** 48;

/** Returns true if the varint at `at` is eight bytes long. */
export function isEightByteLong(framed: Buffer, at: number): boolean {
  for (let index = at; index < at + 7; index++) if (((framed[index] as number) & 0x80) === 0) return false;
  return ((framed[at + 7] as number) & 0x80) === 0;
}

const encodedUuidLength = 0x48; // 36, zig-zag
/**
 * The kind of each byte value in a UUID, and the kind that is expected at each position: 1 for a digit, 2 for a dash.
 */
const byteKinds = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte === 0x2d ? 2 : '0123456789abcdef'.includes(String.fromCharCode(byte)) ? 1 : 0,
);
const expectedByteKinds = Uint8Array.from({ length: 36 }, (_, position) =>
  [8, 13, 18, 23].includes(position) ? 2 : 1,
);

/** Returns the reason why a UUID is invalid. Lookups compare keys as text, so each UUID must have only one spelling. */
function findUuidError(framed: Buffer, at: number): string | undefined {
  if (framed[at] !== encodedUuidLength) return 'an identifier is not 36 characters long';
  for (let position = 0; position < 36; position++) {
    const kind = byteKinds[framed[at + 1 + position] as number];
    if (kind !== expectedByteKinds[position]) return 'an identifier is not a UUID in lower case';
  }
  return undefined;
}

function findTimeError(framed: Buffer, at: number, bounds: TimeBounds[FixedKind]): string | undefined {
  if (!isEightByteLong(framed, at)) return 'a time does not take eight bytes';
  if (bounds === undefined) return undefined;
  const micros = readTimeMicrosAt(framed, at);
  return micros < bounds[0] || micros > bounds[1] ? 'a time is outside the accepted range' : undefined;
}
