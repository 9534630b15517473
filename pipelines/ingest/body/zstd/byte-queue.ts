/** A queue of bytes that arrive in chunks and are read in other sizes. */
export class ByteQueue {
  readonly #chunks: Buffer[] = [];
  /** Number of consumed bytes of the first chunk. */
  #taken = 0;
  length = 0;

  push(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.length += chunk.length;
  }

  /** Copies the first `count` bytes to `target` at `at`. The queue must hold that many. */
  peek(target: Buffer, at: number, count: number): void {
    let from = this.#taken;
    let copied = 0;
    for (let index = 0; copied < count; index++) {
      copied += this.#chunks[index]!.copy(target, at + copied, from, from + count - copied);
      from = 0;
    }
  }

  /** Drops the first `count` bytes. The queue must hold that many. */
  drop(count: number): void {
    this.length -= count;
    let left = count + this.#taken;
    let whole = 0;
    while (whole < this.#chunks.length && left >= this.#chunks[whole]!.length) left -= this.#chunks[whole++]!.length;
    this.#chunks.splice(0, whole);
    this.#taken = left;
  }
}
