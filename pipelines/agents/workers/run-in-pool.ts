import type { TracedRuns } from '../traces/trace-order.ts';
import { RunFeed } from './run-feed.ts';
import type { Chunk, RunJob, RunOutcome } from './worker-pool.ts';

/** One attempt in the pool: its chunks, its time, its end. */
export class RunInPool {
  readonly key: number;
  readonly job: RunJob;
  readonly feed: RunFeed;
  readonly takeTraced: ((traced: TracedRuns) => void) | undefined;
  readonly outcome: Promise<RunOutcome>;
  /** It was asked to stop, and so ends, however its process does. */
  stopping: 'cancelled' | 'timeout' | undefined;
  /** Its end was told already; something of it may still turn in the worker. */
  abandoned = false;
  readonly #timers: NodeJS.Timeout[] = [];
  #resolve!: (outcome: RunOutcome) => void;

  constructor(
    key: number,
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    takeTraced: ((traced: TracedRuns) => void) | undefined,
    on: {
      /** What the worker may send unacknowledged. */
      readonly limitBytes: number;
      readonly acknowledge: (run: RunInPool, bytes: number) => void;
      readonly takeFailed: (run: RunInPool) => void;
    },
  ) {
    this.key = key;
    this.job = job;
    this.takeTraced = takeTraced;
    this.feed = new RunFeed(take, {
      limitBytes: on.limitBytes,
      acknowledge: (bytes) => on.acknowledge(this, bytes),
      failed: () => on.takeFailed(this),
    });
    this.outcome = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  after(ms: number, then: () => void): void {
    // The longest that a timer can wait, about 25 days.
    this.#timers.push(setTimeout(then, Math.min(ms, 2 ** 31 - 1)));
  }

  /** Tells the end, once all chunks were taken. Only the first counts. */
  async end(outcome: RunOutcome): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await this.feed.settled();
    // What readers were to see of it is not whole.
    this.#resolve(this.feed.broken && outcome.kind === 'finished' ? { kind: 'cancelled' } : outcome);
  }
}
