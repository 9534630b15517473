import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { BodyShare } from './body-budget.ts';

/** Smaller chunks are copied into a block, because each chunk costs about 200 bytes in addition to its content. */
const minChunkBytes = 4 * 1024;
const maxBlockBytes = 64 * 1024;

export interface BodyLimit {
  readonly maxBytes: number;
  /** Setting that configures `maxBytes`, or another name of the limit; named in the error. */
  readonly limitName: string;
  /** Budget from which bytes are reserved before they are kept. */
  readonly share?: Pick<BodyShare, 'take'> | undefined;
}

/**
 * Collects the chunks of a body within a limit. It needs about as much memory as the body, even if the bytes arrive one
 * by one. A body that arrives in one chunk is not copied.
 */
export class BodyChunks {
  readonly #limit: BodyLimit;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #block = Buffer.alloc(0);
  /** The bytes `[#start, #end)` of the block are not in `#chunks` yet. */
  #start = 0;
  #end = 0;

  constructor(limit: BodyLimit) {
    this.#limit = limit;
  }

  /** Number of bytes, also of a chunk that exceeded the limit. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @throws BODY_TOO_LARGE; the errors of the budget */
  append(chunk: Buffer): void {
    const { maxBytes, limitName: limit, share } = this.#limit;
    const isFirst = this.#bytes === 0;
    this.#bytes += chunk.length;
    if (this.#bytes > maxBytes) throw runlakeError('BODY_TOO_LARGE', { limitBytes: maxBytes, limit });
    share?.take(chunk.length);
    if (isFirst || chunk.length >= minChunkBytes) {
      this.#closeSection();
      this.#chunks.push(chunk);
    } else this.#copy(chunk);
  }

  /** Returns the collected chunks, in order. The caller may remove those that it has processed. */
  list(): Buffer[] {
    this.#closeSection();
    return this.#chunks;
  }

  join(): Buffer {
    const chunks = this.list();
    return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, this.#bytes);
  }

  clear(): void {
    this.#chunks.length = 0;
    this.#bytes = 0;
    this.#block = Buffer.alloc(0);
    this.#start = 0;
    this.#end = 0;
  }

  #copy(chunk: Buffer): void {
    if (chunk.length > this.#block.length - this.#end) {
      this.#closeSection();
      this.#block = Buffer.allocUnsafe(Math.min(Math.max(this.#bytes, minChunkBytes), maxBlockBytes));
      this.#start = 0;
      this.#end = 0;
    }
    this.#block.set(chunk, this.#end);
    this.#end += chunk.length;
  }

  #closeSection(): void {
    if (this.#end > this.#start) this.#chunks.push(this.#block.subarray(this.#start, this.#end));
    this.#start = this.#end;
  }
}
