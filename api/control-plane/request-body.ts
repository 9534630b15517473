import type { Readable } from 'node:stream';

/**
 * The body of a request that is sent to one replica after another until one accepts it.
 *
 * Invariant: each attempt reads the body from its start. The chunks that were read are kept for the next attempt, up to
 * `maxKeptBytes`; a longer body can no longer be sent again. An attempt that ends early does not end the source, so that
 * the client can still receive a response. At most one chunk is read beyond what the replica accepts.
 */
export class RequestBody {
  readonly #source: AsyncIterator<Buffer>;
  readonly #maxKeptBytes: number;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  /** Number of chunks that are no longer kept. */
  #dropped = 0;
  #ended = false;
  #reading: Promise<void> | undefined;

  constructor(source: Readable, maxKeptBytes: number) {
    this.#source = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    this.#maxKeptBytes = maxKeptBytes;
  }

  /** Whether another attempt can read the body from its start. */
  get canRestart(): boolean {
    return this.#dropped === 0;
  }

  /** Returns the body for one attempt. The previous attempt must have ended. */
  async *read(): AsyncGenerator<Buffer> {
    for (let position = 0; ; position += 1) {
      while (position >= this.#dropped + this.#kept.length) {
        if (this.#ended) return;
        // A read that an earlier attempt started is continued, so that no chunk is lost.
        this.#reading ??= this.#readChunk().finally(() => {
          this.#reading = undefined;
        });
        await this.#reading;
      }
      const chunk = this.#kept[position - this.#dropped] as Buffer;
      if (this.#keptBytes > this.#maxKeptBytes) this.#dropKept();
      yield chunk;
    }
  }

  async #readChunk(): Promise<void> {
    const { done, value } = await this.#source.next();
    if (done === true) {
      this.#ended = true;
      return;
    }
    this.#kept.push(value);
    this.#keptBytes += value.length;
  }

  #dropKept(): void {
    this.#dropped += this.#kept.length;
    this.#kept = [];
  }
}
