/**
 * Writes the primitives of Avro's binary encoding into a buffer that grows.
 * Source: Apache Avro 1.12 specification, "Binary Encoding".
 */
export class AvroWriter {
  #buffer: Buffer;
  #position = 0;

  constructor(initialBytes = 64 * 1024) {
    this.#buffer = Buffer.allocUnsafe(initialBytes);
  }

  get position(): number {
    return this.#position;
  }

  /** A view of the bytes written from `start` on; valid until {@link AvroWriter.rewind} and further writes overwrite them. */
  since(start: number): Buffer {
    return this.#buffer.subarray(start, this.#position);
  }

  /** Discards what was written after `position`. */
  rewind(position: number): void {
    this.#position = position;
  }

  byte(value: number): void {
    this.#reserve(1);
    this.#buffer[this.#position++] = value;
  }

  /** Writes any integer that a double holds exactly, as a zig-zag varint. */
  long(value: number): void {
    this.#reserve(10);
    // Zig-zag doubles the magnitude; a double holds the result exactly below 2^52. Times and sizes are far smaller.
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

  /** Copies what was written from `start` to `end` to the current position. */
  again(start: number, end: number): void {
    this.#reserve(end - start);
    this.#buffer.copyWithin(this.#position, start, end);
    this.#position += end - start;
  }

  #reserve(bytes: number): void {
    const needed = this.#position + bytes;
    if (needed <= this.#buffer.length) return;
    // Callers may hold views of the old buffer, so leave it unchanged.
    const larger = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2));
    this.#buffer.copy(larger, 0, 0, this.#position);
    this.#buffer = larger;
  }
}
