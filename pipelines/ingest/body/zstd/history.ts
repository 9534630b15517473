import { corrupt } from './corrupt.ts';
import { maxWindowBytes } from './frame-header.ts';

const minBytes = 256 * 1024;
const maxBytes = 2 * maxWindowBytes + 1024 * 1024;

/**
 * The decoded bytes of a frame, as far back as a match may reach. Grows with the decoded bytes, not with the sizes that
 * a header states, up to 17 MiB.
 */
export class History {
  bytes: Buffer = Buffer.alloc(0);
  /** Position of the next byte. */
  position = 0;

  /** Clears the history at the start of a frame. */
  clear(): void {
    this.position = 0;
  }

  /** Makes room for `count` more bytes; drops bytes that are further back than `windowBytes`. */
  reserve(count: number, windowBytes: number): void {
    const needed = this.position + count;
    if (needed <= this.bytes.length) return;
    if (this.bytes.length < maxBytes) {
      // Uninitialised memory is safe: nothing reads beyond `position`.
      const grown = Buffer.allocUnsafeSlow(Math.min(maxBytes, Math.max(minBytes, needed, this.bytes.length * 2)));
      this.bytes.copy(grown, 0, 0, this.position);
      this.bytes = grown;
      if (needed <= grown.length) return;
    }
    const kept = Math.min(windowBytes, this.position);
    this.bytes.copyWithin(0, this.position - kept, this.position);
    this.position = kept;
  }

  append(from: Buffer, start: number, end: number): void {
    const { bytes } = this;
    const count = end - start;
    if (count > 64) bytes.set(from.subarray(start, end), this.position);
    else for (let index = 0; index < count; index++) bytes[this.position + index] = from[start + index]!;
    this.position += count;
  }

  fill(byte: number, count: number): void {
    this.bytes.fill(byte, this.position, this.position + count);
    this.position += count;
  }

  /** Copies `count` bytes from `offset` bytes back; source and target may overlap. @throws INVALID_COMPRESSION */
  repeat(offset: number, count: number): void {
    const { bytes, position } = this;
    const from = position - offset;
    if (from < 0 || offset <= 0) throw corrupt('a match reaches back before the start of its frame');
    if (count > 64 && offset >= count) bytes.copyWithin(position, from, from + count);
    else if (count > 64 && offset === 1) bytes.fill(bytes[from]!, position, position + count);
    else for (let index = 0; index < count; index++) bytes[position + index] = bytes[from + index]!;
    this.position = position + count;
  }
}
