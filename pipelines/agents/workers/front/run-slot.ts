import type { ChildRunBatch } from '../../traces/trace-order.ts';
import { type Chunk, computeEventCost, type RunJob, type RunOutcome } from '../messages.ts';

export interface RunConsumer {
  readonly take: (chunks: readonly Chunk[]) => Promise<void>;
  readonly onChildRuns?: ((traced: ChildRunBatch) => void) | undefined;
}

export interface RunSlotOptions {
  /** Maximum cost of unacknowledged events. */
  readonly limitBytes: number;
  /** Called with the cost of each batch after `take` has settled. */
  readonly acknowledge: (slot: RunSlot, bytes: number) => void;
  readonly cancel: (slot: RunSlot) => void;
}

/**
 * The slot of one attempt in the worker pool: the parent process's own record of the run, which does not depend on the
 * worker.
 *
 * Chunks go to `take` in order and one batch at a time. Chunks that arrive meanwhile form the next batch; the send
 * window bounds its size. If `take` rejects, the run is cancelled and all later chunks are dropped.
 */
export class RunSlot {
  readonly key: number;
  readonly job: RunJob;
  readonly onChildRuns: RunConsumer['onChildRuns'];
  /** Never rejects. Resolves after the last chunk was consumed. */
  readonly outcome: Promise<RunOutcome>;
  /** Number of nodes that the attempt has executed; undefined if the worker has not reported the end. */
  nodes: number | undefined;
  /** Set when the run was cancelled or timed out. The value is then the outcome of the run even if the process dies. */
  stopping: 'cancelled' | 'timeout' | undefined;
  /** Whether the outcome was reported before the run ended in the worker. Its code may still execute there. */
  abandoned = false;
  readonly #take: RunConsumer['take'];
  readonly #options: RunSlotOptions;
  readonly #timers: NodeJS.Timeout[] = [];
  #pending: (readonly Chunk[])[] = [];
  #unacknowledgedBytes = 0;
  #draining: Promise<void> | undefined;
  /** Whether `take` has rejected. */
  #isBroken = false;
  #resolve!: (outcome: RunOutcome) => void;

  constructor(key: number, job: RunJob, { take, onChildRuns }: RunConsumer, options: RunSlotOptions) {
    this.key = key;
    this.job = job;
    this.onChildRuns = onChildRuns;
    this.#take = take;
    this.#options = options;
    this.outcome = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** Aborts the graph. The outcome is `cancelled` within a few seconds, even if the graph ignores the abort. */
  cancel(): void {
    this.#options.cancel(this);
  }

  /** Adds chunks that arrived. @returns whether the send window allowed the worker to send them. */
  put(chunks: readonly Chunk[]): boolean {
    this.#unacknowledgedBytes += sumCosts(chunks);
    if (this.#unacknowledgedBytes > this.#options.limitBytes) return false;
    this.#pending.push(chunks);
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = undefined;
    });
    return true;
  }

  after(ms: number, then: () => void): void {
    // The maximum delay of a Node timer is 2^31 - 1 ms, about 25 days.
    this.#timers.push(setTimeout(then, Math.min(ms, 2 ** 31 - 1)));
  }

  /** Resolves `outcome` when all chunks were consumed. Only the first call has an effect. */
  async end(outcome: RunOutcome): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    while (this.#draining !== undefined) await this.#draining;
    // If `take` has rejected, events are missing from the log, so the outcome must not be `finished`.
    this.#resolve(this.#isBroken && outcome.kind === 'finished' ? { kind: 'cancelled' } : outcome);
  }

  async #drain(): Promise<void> {
    while (this.#pending.length > 0) {
      const [first, ...more] = this.#pending as [readonly Chunk[], ...(readonly Chunk[])[]];
      const chunks = more.length === 0 ? first : this.#pending.flat();
      this.#pending = [];
      if (!this.#isBroken) {
        try {
          await this.#take(chunks);
        } catch {
          this.#isBroken = true;
          this.cancel();
        }
      }
      const bytes = sumCosts(chunks);
      this.#unacknowledgedBytes -= bytes;
      this.#options.acknowledge(this, bytes);
    }
  }
}

function sumCosts(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, chunk) => sum + computeEventCost(chunk), 0);
}
