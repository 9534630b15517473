import { ByteQueue } from './byte-queue.ts';
import { corrupt } from './corrupt.ts';
import { type FrameHeader, maxHeaderBytes, readFrameHeader, skippableFrameBytes } from './frame-header.ts';
import { History } from './history.ts';
import type { HuffmanTable } from './huffman.ts';
import { readLiterals } from './literals.ts';
import type { SequenceTables } from './sequence-tables.ts';
import { type RecentOffsets, runSequences } from './sequences.ts';

/** Maximum size of a block, encoded or decoded. Source: RFC 8878, section 3.1.1.2.3. */
const maxBlockBytes = 128 * 1024;

/** Padding before and after a block: bit readers load four bytes at once. */
const paddingBytes = 8;

type State = 'frame' | 'skip' | 'block header' | 'block';

/**
 * Decodes consecutive Zstandard frames, one block at a time. Work and memory are bounded by the input and the output: a
 * block yields at most 128 KiB, and a frame keeps at most its window. Does not verify checksums.
 *
 * This is own code because Node's decoder accepts a truncated stream as complete and drops every frame after the first,
 * and the decoders on the registry do not bound the work per block.
 *
 * Source: RFC 8878.
 */
export class ZstdDecoder {
  readonly #input = new ByteQueue();
  readonly #header = Buffer.alloc(maxHeaderBytes);
  readonly #block = Buffer.alloc(paddingBytes + maxBlockBytes + paddingBytes);
  readonly #literals = Buffer.alloc(maxBlockBytes);
  readonly #history = new History();
  #state: State = 'frame';
  #frames = 0;
  #skipBytes = 0;
  #frame: FrameHeader = { headerBytes: 0, windowBytes: 0, contentBytes: undefined, hasChecksum: false };
  #yielded = 0;
  #isLast = false;
  #blockType = 0;
  #blockBytes = 0;
  #huffman: HuffmanTable | undefined;
  #tables: SequenceTables = { literalLengths: undefined, offsets: undefined, matchLengths: undefined };
  #recent: RecentOffsets = [1, 4, 8];

  push(chunk: Buffer): void {
    this.#input.push(chunk);
  }

  /**
   * Decodes the next block into a buffer of its own, possibly empty; returns `undefined` if it needs more input.
   * @throws INVALID_COMPRESSION
   */
  next(): Buffer | undefined {
    for (;;) {
      if (this.#state === 'frame') {
        if (!this.#beginFrame()) return undefined;
      } else if (this.#state === 'skip') {
        const count = Math.min(this.#skipBytes, this.#input.length);
        this.#input.drop(count);
        this.#skipBytes -= count;
        if (this.#skipBytes > 0) return undefined;
        this.#state = 'frame';
      } else if (this.#state === 'block header') {
        if (!this.#beginBlock()) return undefined;
      } else {
        const encodedBytes = this.#blockType === 1 ? 1 : this.#blockBytes;
        if (this.#input.length < encodedBytes) return undefined;
        this.#input.peek(this.#block, paddingBytes, encodedBytes);
        this.#input.drop(encodedBytes);
        const yielded = this.#decodeBlock(paddingBytes + encodedBytes);
        this.#endBlock(yielded.length);
        return yielded;
      }
    }
  }

  /** Ends the input. @throws INVALID_COMPRESSION if it did not end with a complete frame, or was empty. */
  finish(): void {
    if (this.#state !== 'frame' || this.#input.length > 0) throw corrupt('the stream ends early');
    if (this.#frames === 0) throw corrupt('the stream is empty');
  }

  #beginFrame(): boolean {
    const available = Math.min(this.#input.length, maxHeaderBytes);
    if (available < 8) {
      // The shortest complete frame has nine bytes, the header of a skippable frame eight.
      return false;
    }
    const bytes = this.#header.subarray(0, available);
    this.#input.peek(bytes, 0, available);
    const skipBytes = skippableFrameBytes(bytes);
    if (skipBytes !== undefined) {
      this.#skipBytes = skipBytes;
      this.#state = 'skip';
      this.#frames++;
      return true;
    }
    const frame = readFrameHeader(bytes);
    if (frame === undefined) return false;
    this.#input.drop(frame.headerBytes);
    this.#frames++;
    this.#frame = frame;
    this.#yielded = 0;
    this.#history.clear();
    this.#huffman = undefined;
    this.#tables = { literalLengths: undefined, offsets: undefined, matchLengths: undefined };
    this.#recent = [1, 4, 8];
    this.#state = 'block header';
    return true;
  }

  #beginBlock(): boolean {
    if (this.#input.length < 3) return false;
    this.#input.peek(this.#header, 0, 3);
    this.#input.drop(3);
    const header = this.#header.readUIntLE(0, 3);
    this.#isLast = (header & 1) === 1;
    this.#blockType = (header >>> 1) & 3;
    this.#blockBytes = header >>> 3;
    if (this.#blockType === 3) throw corrupt('a block has a reserved type');
    if (this.#blockBytes > this.#maxBlockBytes) throw corrupt('a block is larger than allowed');
    this.#state = 'block';
    return true;
  }

  get #maxBlockBytes(): number {
    return Math.min(this.#frame.windowBytes, maxBlockBytes);
  }

  #decodeBlock(end: number): Buffer {
    const history = this.#history;
    history.reserve(this.#maxBlockBytes, this.#frame.windowBytes);
    const start = history.position;
    if (this.#blockType === 0) history.append(this.#block, paddingBytes, end);
    else if (this.#blockType === 1) history.fill(this.#block[paddingBytes]!, this.#blockBytes);
    else {
      const literals = readLiterals(this.#block, paddingBytes, end, this.#huffman, this.#literals, this.#maxBlockBytes);
      this.#huffman = literals.table;
      const { sectionEnd } = literals;
      runSequences(this.#block, sectionEnd, end, literals, this.#tables, this.#recent, history, this.#maxBlockBytes);
    }
    return Buffer.from(history.bytes.subarray(start, history.position));
  }

  #endBlock(yielded: number): void {
    this.#yielded += yielded;
    const { contentBytes, hasChecksum } = this.#frame;
    if (
      contentBytes !== undefined &&
      (this.#yielded > contentBytes || (this.#isLast && this.#yielded < contentBytes))
    ) {
      throw corrupt(`a frame does not yield the ${contentBytes} bytes that its header announces`);
    }
    if (!this.#isLast) {
      this.#state = 'block header';
      return;
    }
    this.#skipBytes = hasChecksum ? 4 : 0;
    this.#state = 'skip';
  }
}
