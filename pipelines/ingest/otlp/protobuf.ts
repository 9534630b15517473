import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { PartLimit } from './part-limit.ts';

/**
 * Reads protobuf's wire format without creating objects: the caller switches on tags and reads the fields that it
 * needs. Every read stays inside the current message. Malformed input, such as a length that runs
 * past the end of the message, a group or field number 0, throws INVALID_PROTOBUF with the offset in the body. Source:
 * protobuf.dev, "Encoding".
 */
export class ProtobufReader {
  readonly source: Buffer;
  /** Counts every attribute, event and link that is read. */
  readonly details: PartLimit;
  position = 0;
  limit: number;
  /** Unsigned low and high halves of the last 64-bit value that was read. */
  low = 0;
  high = 0;

  constructor(source: Buffer, details: PartLimit) {
    this.source = source;
    this.details = details;
    this.limit = source.length;
  }

  /** Continues reading inside `[start, end)`. */
  seek(start: number, end: number): void {
    this.position = start;
    this.limit = end;
  }

  get more(): boolean {
    return this.position < this.limit;
  }

  /** Reads a tag: field number times eight plus wire type. */
  tag(): number {
    const at = this.position;
    const value = this.uint32();
    if (value >>> 3 === 0) throw this.#broken(at, 'field number 0');
    return value;
  }

  /** Reads the low 32 bits of a varint, which is enough for counts, enums and flags. */
  uint32(): number {
    const first = this.source[this.position]!;
    if (first < 0x80 && this.position < this.limit) {
      this.position++;
      return first;
    }
    this.varint64();
    return this.low;
  }

  /** Reads a varint of up to 64 bits into `low` and `high`. */
  varint64(): void {
    const start = this.position;
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.position >= this.limit) throw this.#broken(start, 'truncated varint');
      const byte = this.source[this.position++]!;
      const bits = byte & 0x7f;
      if (shift < 28) low |= bits << shift;
      else if (shift === 28) {
        low |= bits << 28;
        high |= bits >>> 4;
      } else high |= bits << (shift - 32);
      if (byte < 0x80) {
        this.low = low >>> 0;
        this.high = high >>> 0;
        return;
      }
    }
    throw this.#broken(start, 'varint longer than ten bytes');
  }

  fixed32(): number {
    const at = this.#take(4);
    return this.source.readUInt32LE(at);
  }

  fixed64(): void {
    const at = this.#take(8);
    this.low = this.source.readUInt32LE(at);
    this.high = this.source.readUInt32LE(at + 4);
  }

  double(): number {
    const at = this.#take(8);
    return this.source.readDoubleLE(at);
  }

  /** Skips a length-delimited field and returns its start; its end is `position`. */
  delimited(): number {
    const at = this.position;
    this.#length();
    const length = this.low;
    if (this.high !== 0 || length > this.limit - this.position) throw this.#broken(at, 'length beyond its message');
    const start = this.position;
    this.position += length;
    return start;
  }

  skip(tag: number): void {
    switch (tag & 7) {
      case 0:
        this.varint64();
        return;
      case 1:
        this.#take(8);
        return;
      case 2:
        this.delimited();
        return;
      case 5:
        this.#take(4);
        return;
      default:
        throw this.#broken(this.position, (tag & 7) < 5 ? 'groups are not supported' : 'unknown wire type');
    }
  }

  #length(): void {
    const first = this.source[this.position]!;
    if (first < 0x80 && this.position < this.limit) {
      this.position++;
      this.low = first;
      this.high = 0;
    } else this.varint64();
  }

  #take(bytes: number): number {
    const at = this.position;
    if (bytes > this.limit - at) throw this.#broken(at, 'truncated field');
    this.position = at + bytes;
    return at;
  }

  #broken(offset: number, reason: string): RunlakeError {
    return runlakeError('INVALID_PROTOBUF', { offset, reason });
  }
}

/**
 * Writes protobuf's wire format into a growing buffer in one pass. Lengths are padded to five bytes: {@link begin}
 * reserves them and {@link end} fills them in.
 */
export class ProtobufWriter {
  #buffer: Buffer;
  #position = 0;

  constructor(initialBytes = 1024) {
    this.#buffer = Buffer.allocUnsafe(initialBytes);
  }

  /** Returns a view of the bytes written so far. */
  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#position);
  }

  get position(): number {
    return this.#position;
  }

  /** Discards everything that was written after `position`. */
  rewind(position: number): void {
    this.#position = position;
  }

  /** Starts a nested message under `tag`; pass the returned mark to {@link end}. */
  begin(tag: number): number {
    this.#tag(tag);
    this.#reserve(5);
    this.#position += 5;
    return this.#position;
  }

  end(mark: number): void {
    let length = this.#position - mark;
    for (let index = mark - 5; index < mark - 1; index++) {
      this.#buffer[index] = (length & 0x7f) | 0x80;
      length >>>= 7;
    }
    this.#buffer[mark - 1] = length;
  }

  text(tag: number, value: string): void {
    const mark = this.begin(tag);
    this.#reserve(value.length * 3);
    this.#position += this.#buffer.write(value, this.#position, 'utf8');
    this.end(mark);
  }

  data(tag: number, value: Uint8Array): void {
    const mark = this.begin(tag);
    this.#reserve(value.length);
    this.#buffer.set(value, this.#position);
    this.#position += value.length;
    this.end(mark);
  }

  /** Writes a varint of up to 64 bits; negative values are written as two's complement. */
  varint(tag: number, value: bigint): void {
    this.#tag(tag);
    this.#reserve(10);
    let rest = BigInt.asUintN(64, value);
    while (rest > 0x7fn) {
      this.#buffer[this.#position++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.#buffer[this.#position++] = Number(rest);
  }

  fixed32(tag: number, value: number): void {
    this.#tag(tag);
    this.#reserve(4);
    this.#position = this.#buffer.writeUInt32LE(value, this.#position);
  }

  fixed64(tag: number, value: bigint): void {
    this.#tag(tag);
    this.#reserve(8);
    this.#position = this.#buffer.writeBigUInt64LE(value, this.#position);
  }

  double(tag: number, value: number): void {
    this.#tag(tag);
    this.#reserve(8);
    this.#position = this.#buffer.writeDoubleLE(value, this.#position);
  }

  /** Writes a tag below 2^14. The tags of all fields that this class writes are below this limit. */
  #tag(tag: number): void {
    this.#reserve(2);
    if (tag > 0x7f) this.#buffer[this.#position++] = (tag & 0x7f) | 0x80;
    this.#buffer[this.#position++] = tag > 0x7f ? tag >>> 7 : tag;
  }

  #reserve(bytes: number): void {
    const needed = this.#position + bytes;
    if (needed <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
    this.#buffer.copy(larger, 0, 0, this.#position);
    this.#buffer = larger;
  }
}
