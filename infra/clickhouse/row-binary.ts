/**
 * Reads values of ClickHouse's format RowBinary one after the other. The format does not name types, so the caller reads
 * exactly the types of the columns; a tuple is read element by element. Source: ClickHouse documentation, "RowBinary".
 */
export class RowBinaryReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  /** Reads a `String` as a view of its bytes. */
  text(): Buffer {
    const length = this.#readLength();
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  nullable<Value>(read: () => Value): Value | undefined {
    return this.#bytes[this.#at++] === 1 ? undefined : read();
  }

  array<Value>(read: () => Value): Value[] {
    return Array.from({ length: this.#readLength() }, read);
  }

  uint8(): number {
    return this.#bytes[this.#at++]!;
  }

  /**
   * Reads an `Int64`, or a `DateTime64` in its own unit. Beyond 53 bits, the number is the nearest one. For a `UInt64`, only
   * whether it is 0 is certain.
   */
  int64(): number {
    this.#at += 8;
    return this.#bytes.readInt32LE(this.#at - 4) * 2 ** 32 + this.#bytes.readUInt32LE(this.#at - 8);
  }

  uuid(): string {
    this.#at += 16;
    // Two 64-bit integers in little-endian form.
    const hex = Buffer.from(this.#bytes.subarray(this.#at - 16, this.#at))
      .swap64()
      .toString('hex');
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  }

  /** Reads an `Int256`, or a decimal with more than 38 digits as the integer of all its digits. */
  int256(): bigint {
    let value = 0n;
    this.#at += 32;
    for (let word = 1; word <= 4; word++) {
      const at = this.#at - 8 * word;
      value = (value << 64n) + (word === 1 ? this.#bytes.readBigInt64LE(at) : this.#bytes.readBigUInt64LE(at));
    }
    return value;
  }

  /** Reads a length in LEB128. */
  #readLength(): number {
    let length = 0;
    let factor = 1;
    let byte: number;
    do {
      byte = this.#bytes[this.#at++]!;
      length += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte > 0x7f);
    return length;
  }
}

/**
 * Reads rows whose columns are all `Nullable(String)`. Does not copy or decode values, so that the stored bytes are
 * returned unchanged.
 *
 * @returns the rows with their values in column order. Each value is a view into `result`.
 */
export function readNullableTextRows(result: Buffer, columns: number): (Buffer | undefined)[][] {
  const reader = new RowBinaryReader(result);
  const readText = () => reader.text();
  const rows: (Buffer | undefined)[][] = [];
  while (!reader.isAtEnd) rows.push(Array.from({ length: columns }, () => reader.nullable(readText)));
  return rows;
}
