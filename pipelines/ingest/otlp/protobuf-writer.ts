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

  /** A view of what was written. */
  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#position);
  }

  get position(): number {
    return this.#position;
  }

  /** Discards what was written after `position`. */
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

  /** Writes a varint of up to 64 bits; negative values as two's complement. */
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

  /** Writes a tag below 2^14, which all fields written here have. */
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
