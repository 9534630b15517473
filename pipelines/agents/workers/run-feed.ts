import { eventCost } from './send-window.ts';
import type { Chunk } from './worker-pool.ts';

export interface RunFeedOptions {
  /** What events that are not acknowledged may cost. */
  readonly limitBytes: number;
  /** Called with the cost of each hand-over when it is over. */
  readonly acknowledge: (bytes: number) => void;
  /** Called once, when a hand-over was rejected: the rest is dropped. */
  readonly failed: () => void;
}

/** Hands the chunks of one run on, in order. While one hand-over goes on, chunks that come gather; the send window bounds them. */
export class RunFeed {
  readonly #take: (chunks: readonly Chunk[]) => Promise<void>;
  readonly #options: RunFeedOptions;
  #gathered: (readonly Chunk[])[] = [];
  #heldBytes = 0;
  #handingOver: Promise<void> | undefined;
  #broken = false;

  constructor(take: (chunks: readonly Chunk[]) => Promise<void>, options: RunFeedOptions) {
    this.#take = take;
    this.#options = options;
  }

  /** Whether a hand-over was rejected. */
  get broken(): boolean {
    return this.#broken;
  }

  /** Takes note of what comes next. @returns whether the worker may send it. */
  admit(bytes: number): boolean {
    this.#heldBytes += bytes;
    return this.#heldBytes <= this.#options.limitBytes;
  }

  put(chunks: readonly Chunk[]): void {
    this.#gathered.push(chunks);
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
      const [first, ...more] = this.#gathered as [readonly Chunk[], ...(readonly Chunk[])[]];
      const chunks = more.length === 0 ? first : this.#gathered.flat();
      this.#gathered = [];
      if (!this.#broken) {
        try {
          await this.#take(chunks);
        } catch {
          this.#broken = true;
          this.#options.failed();
        }
      }
      const bytes = chunks.reduce((sum, chunk) => sum + eventCost(chunk), 0);
      this.#heldBytes -= bytes;
      this.#options.acknowledge(bytes);
    }
  }
}
