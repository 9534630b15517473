/** Bytes that all partitions together may hold in memory. Whoever holds them decides what to do beyond it. */
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

  /** @returns ends that. */
  onFreed(listener: () => void): () => void {
    this.#whenFreed.add(listener);
    return () => this.#whenFreed.delete(listener);
  }
}
