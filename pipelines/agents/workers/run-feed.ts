import { eventCost } from './send-window.ts';
import type { Chunk } from './worker-pool.ts';

export interface RunFeedOptions {
  /** Maximum cost of unacknowledged events. */
  readonly limitBytes: number;
  /** Called with the cost of each batch after `take` has settled. */
  readonly acknowledge: (bytes: number) => void;
  /** Called once, when `take` rejects. The feed drops all later chunks. */
  readonly failed: () => void;
}

/**
 * Passes the chunks of one run to `take`, in order and one batch at a time. Chunks that arrive meanwhile form the next
 * batch; the send window bounds its size.
 */
export class RunFeed {
  readonly #take: (chunks: readonly Chunk[]) => Promise<void>;
  readonly #options: RunFeedOptions;
  #pending: (readonly Chunk[])[] = [];
  #unacknowledgedBytes = 0;
  #draining: Promise<void> | undefined;
  #broken = false;

  constructor(take: (chunks: readonly Chunk[]) => Promise<void>, options: RunFeedOptions) {
    this.#take = take;
    this.#options = options;
  }

  /** Whether `take` has rejected. */
  get broken(): boolean {
    return this.#broken;
  }

  /** Adds the cost of chunks that arrived. @returns whether the worker was allowed to send them. */
  admit(bytes: number): boolean {
    this.#unacknowledgedBytes += bytes;
    return this.#unacknowledgedBytes <= this.#options.limitBytes;
  }

  put(chunks: readonly Chunk[]): void {
    this.#pending.push(chunks);
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = undefined;
    });
  }

  /** Resolves when `take` has consumed all chunks, or has rejected. */
  async settled(): Promise<void> {
    while (this.#draining !== undefined) await this.#draining;
  }

  async #drain(): Promise<void> {
    while (this.#pending.length > 0) {
      const [first, ...more] = this.#pending as [readonly Chunk[], ...(readonly Chunk[])[]];
      const chunks = more.length === 0 ? first : this.#pending.flat();
      this.#pending = [];
      if (!this.#broken) {
        try {
          await this.#take(chunks);
        } catch {
          this.#broken = true;
          this.#options.failed();
        }
      }
      const bytes = chunks.reduce((sum, chunk) => sum + eventCost(chunk), 0);
      this.#unacknowledgedBytes -= bytes;
      this.#options.acknowledge(bytes);
    }
  }
}
