import type { TracedRuns } from '../traces/trace-order.ts';
import { RunFeed } from './run-feed.ts';
import type { Chunk, RunJob, RunOutcome } from './worker-pool.ts';

/** The front's record of one attempt: its feed of chunks, its timers and its outcome. */
export class RunInPool {
  readonly key: number;
  readonly job: RunJob;
  readonly feed: RunFeed;
  readonly onChildRuns: ((traced: TracedRuns) => void) | undefined;
  readonly outcome: Promise<RunOutcome>;
  /** Set when the run was cancelled or timed out. The value is then the outcome of the run even if the process dies. */
  stopping: 'cancelled' | 'timeout' | undefined;
  /** Whether the outcome was reported before the run ended in the worker. Its code may still execute there. */
  abandoned = false;
  readonly #timers: NodeJS.Timeout[] = [];
  #resolve!: (outcome: RunOutcome) => void;

  constructor(
    key: number,
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    onChildRuns: ((traced: TracedRuns) => void) | undefined,
    on: {
      /** Maximum cost of the events that the worker may send before they are acknowledged. */
      readonly limitBytes: number;
      readonly acknowledge: (run: RunInPool, bytes: number) => void;
      readonly onConsumeFailed: (run: RunInPool) => void;
    },
  ) {
    this.key = key;
    this.job = job;
    this.onChildRuns = onChildRuns;
    this.feed = new RunFeed(take, {
      limitBytes: on.limitBytes,
      acknowledge: (bytes) => on.acknowledge(this, bytes),
      failed: () => on.onConsumeFailed(this),
    });
    this.outcome = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  after(ms: number, then: () => void): void {
    // The maximum delay of a Node timer is 2^31 - 1 ms, about 25 days.
    this.#timers.push(setTimeout(then, Math.min(ms, 2 ** 31 - 1)));
  }

  /** Resolves `outcome` when all chunks were consumed. Only the first call has an effect. */
  async end(outcome: RunOutcome): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await this.feed.settled();
    // If `take` has rejected, events are missing from the log, so the outcome must not be `finished`.
    this.#resolve(this.feed.broken && outcome.kind === 'finished' ? { kind: 'cancelled' } : outcome);
  }
}
