import type { Readable } from 'node:stream';

/** Approximate memory of a chunk in addition to its bytes: a chunk may have one byte. */
const chunkOverheadBytes = 200;

/** Maximum number of bytes that one request, and all requests together, keep. `usedBytes` are those that all keep now. */
export interface KeptBytes {
  readonly maxBytes: number;
  readonly maxTotalBytes: number;
  usedBytes: number;
}

/**
 * The body of a request that is sent to one replica after another until one accepts it.
 *
 * Invariant: each attempt reads the body from its start. The chunks that were read are kept for the next attempt, within
 * the limits of {@link KeptBytes}; beyond them, the body can no longer be sent again. An attempt that ends early does not
 * end the source, so that the client can still receive a response. At most one chunk is read beyond what the replica
 * accepts.
 */
export class RequestBody {
  readonly #source: AsyncIterator<Buffer>;
  readonly #limits: KeptBytes;
  /** Chunks from number `#dropped` on. */
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #dropped = 0;
  #attempts = 0;
  /** Number of the next chunk that the current attempt reads. */
  #position = 0;
  #isKeeping = true;
  #ended = false;
  #reading: Promise<void> | undefined;

  constructor(source: Readable, limits: KeptBytes) {
    this.#source = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    this.#limits = limits;
  }

  /** Whether another attempt can read the body from its start. */
  get canRestart(): boolean {
    return this.#dropped === 0;
  }

  /** Returns the body for one attempt. The previous attempt must have ended. */
  async *read(): AsyncGenerator<Buffer> {
    const attempt = ++this.#attempts;
    for (this.#position = 0; ; ) {
      while (this.#position >= this.#dropped + this.#kept.length) {
        if (this.#ended) return;
        // A read that an earlier attempt started is continued, so that no chunk is lost.
        this.#reading ??= this.#readChunk().finally(() => {
          this.#reading = undefined;
        });
        await this.#reading;
        if (attempt !== this.#attempts) return;
      }
      const chunk = this.#kept[this.#position - this.#dropped] as Buffer;
      this.#position += 1;
      if (!this.#isKeeping) this.#dropRead();
      yield chunk;
    }
  }

  /** Keeps chunks only until the current attempt has read them. There must be no further attempt. Idempotent. */
  stopKeeping(): void {
    if (!this.#isKeeping) return;
    this.#isKeeping = false;
    this.#limits.usedBytes -= this.#keptBytes;
    this.#dropRead();
  }

  async #readChunk(): Promise<void> {
    const { done, value } = await this.#source.next();
    if (done === true) {
      this.#ended = true;
      return;
    }
    this.#kept.push(value);
    if (!this.#isKeeping) return;
    const bytes = value.length + chunkOverheadBytes;
    this.#keptBytes += bytes;
    this.#limits.usedBytes += bytes;
    const { maxBytes, maxTotalBytes, usedBytes } = this.#limits;
    if (this.#keptBytes > maxBytes || usedBytes > maxTotalBytes) this.stopKeeping();
  }

  #dropRead(): void {
    this.#kept.splice(0, this.#position - this.#dropped);
    this.#dropped = Math.max(this.#dropped, this.#position);
  }
}
