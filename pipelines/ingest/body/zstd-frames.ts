/**
 * Follows the frames and blocks of a Zstandard stream without decoding them, and says when decoding it would cost too much.
 * The JavaScript decoder allocates each frame's window and moves all of it for every block, so a few bytes could ask for
 * gigabytes of work: small blocks under a large window, or many frames. Source: RFC 8878, sections 3.1.1 and 3.1.2.
 */

/** What the reference decoder grants without being told otherwise, 2^27. */
const maxWindowBytes = 128 * 1024 * 1024;

/** Bytes allocated and moved for one stream; about two seconds of it. */
const maxWorkBytes = 8 * 1024 ** 3;

const frameMagic = 0xfd2fb528;
/** Sixteen magics, of which the low four bits are free. */
const skippableMagic = 0x0184d2a5;
const longestHeaderBytes = 18;

type State = 'header' | 'block' | 'skip';

export class ZstdFrames {
  #carry: Buffer = Buffer.alloc(0);
  #state: State = 'header';
  #skip = 0;
  #lastBlock = false;
  #checksum = false;
  #window = 0;
  #work = 0;

  /** Why the stream must not be decoded, as far as it is known; nothing where it may. */
  follow(chunk: Buffer): string | undefined {
    let bytes = this.#carry.length > 0 ? Buffer.concat([this.#carry, chunk]) : chunk;
    this.#carry = Buffer.alloc(0);
    while (bytes.length > 0) {
      if (this.#state === 'skip') {
        const skipped = Math.min(this.#skip, bytes.length);
        this.#skip -= skipped;
        bytes = bytes.subarray(skipped);
        if (this.#skip > 0) return undefined;
        this.#state = this.#lastBlock ? 'header' : 'block';
        continue;
      }
      const taken = this.#state === 'header' ? this.#header(bytes) : this.#block(bytes);
      if (typeof taken === 'string') return taken;
      if (taken === 0) {
        this.#carry = Buffer.from(bytes);
        return undefined;
      }
      bytes = bytes.subarray(taken);
      if (this.#work > maxWorkBytes) return 'its blocks are too small for its window';
    }
    return undefined;
  }

  /** Bytes of the frame header, 0 where it is not whole yet, or what is wrong with it. */
  #header(bytes: Buffer): number | string {
    if (bytes.length < 5) return 0;
    const magic = bytes.readUInt32LE(0);
    if (magic >>> 4 === skippableMagic) {
      if (bytes.length < 8) return 0;
      this.#lastBlock = true;
      this.#skipNext(bytes.readUInt32LE(4));
      return 8;
    }
    if (magic !== frameMagic) return 'no Zstandard frame begins where one was expected';
    const descriptor = bytes[4] as number;
    const singleSegment = (descriptor & 0x20) !== 0;
    const sizeFlag = descriptor >> 6;
    const dictionaryBytes = [0, 1, 2, 4][descriptor & 3] as number;
    const sizeBytes = sizeFlag === 0 ? (singleSegment ? 1 : 0) : 2 ** sizeFlag;
    const length = 5 + (singleSegment ? 0 : 1) + dictionaryBytes + sizeBytes;
    if (bytes.length < Math.min(length, longestHeaderBytes)) return 0;
    this.#window = singleSegment ? contentSize(bytes, length - sizeBytes, sizeBytes) : windowSize(bytes[5] as number);
    if (this.#window > maxWindowBytes) return `its window is larger than ${maxWindowBytes} bytes`;
    this.#work += this.#window;
    this.#checksum = (descriptor & 4) !== 0;
    this.#lastBlock = false;
    this.#state = 'block';
    return length;
  }

  #block(bytes: Buffer): number {
    if (bytes.length < 3) return 0;
    const header = bytes.readUIntLE(0, 3);
    const repeated = ((header >> 1) & 3) === 1;
    this.#lastBlock = (header & 1) === 1;
    this.#work += this.#window;
    this.#skipNext((repeated ? 1 : header >> 3) + (this.#lastBlock && this.#checksum ? 4 : 0));
    return 3;
  }

  #skipNext(bytes: number): void {
    this.#skip = bytes;
    this.#state = bytes > 0 ? 'skip' : this.#lastBlock ? 'header' : 'block';
  }
}

function windowSize(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >> 3));
  return base + (base / 8) * (descriptor & 7);
}

function contentSize(bytes: Buffer, at: number, length: number): number {
  if (length === 8) return Number(bytes.readBigUInt64LE(at));
  return bytes.readUIntLE(at, length) + (length === 2 ? 256 : 0);
}
