import type { Chunk } from './worker-pool.ts';

/**
 * Hands the chunks of one run on, in order. While one hand-over is under way what comes gathers; the worker's credit bounds it.
 */
export class RunFeed {
  readonly #take: (chunks: readonly Chunk[]) => Promise<void>;
  readonly #taken: (bytes: number) => void;
  readonly #failed: () => void;
  #gathered: Chunk[] = [];
  #handingOver: Promise<void> | undefined;
  #broken = false;

  /** `taken` is told the bytes of each hand-over; `failed` once, when one was rejected: the rest is dropped. */
  constructor(take: (chunks: readonly Chunk[]) => Promise<void>, taken: (bytes: number) => void, failed: () => void) {
    this.#take = take;
    this.#taken = taken;
    this.#failed = failed;
  }

  /** Whether a hand-over was rejected. */
  get broken(): boolean {
    return this.#broken;
  }

  put(chunks: readonly Chunk[]): void {
    this.#gathered.push(...chunks);
    this.#handingOver ??= this.#handOver().finally(() => {
      this.#handingOver = undefined;
    });
  }

  /** Resolves when all that was put in was taken, or cannot be. */
  async settled(): Promise<void> {
    while (this.#handingOver !== undefined) await this.#handingOver;
  }

  async #handOver(): Promise<void> {
    while (this.#gathered.length > 0) {
      const chunks = this.#gathered;
      this.#gathered = [];
      if (!this.#broken) {
        try {
          await this.#take(chunks);
        } catch {
          this.#broken = true;
          this.#failed();
        }
      }
      this.#taken(chunks.reduce((sum, { data }) => sum + data.byteLength, 0));
    }
  }
}
