/** Counts the bytes that all partitions hold in memory. It enforces nothing: its users check {@link ByteBudget.spent}. */
export class ByteBudget {
  readonly #limitBytes: number;
  readonly #whenFreed = new Set<() => void>();
  #usedBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get spent(): boolean {
    return this.#usedBytes >= this.#limitBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  take(bytes: number): void {
    this.#usedBytes += bytes;
  }

  free(bytes: number): void {
    this.#usedBytes -= bytes;
    for (const listener of this.#whenFreed) listener();
  }

  /** Calls `listener` after each {@link ByteBudget.free}. @returns a function that removes the listener. */
  onFreed(listener: () => void): () => void {
    this.#whenFreed.add(listener);
    return () => this.#whenFreed.delete(listener);
  }
}
