import type { ChildRunBatch } from '../traces/trace-order.ts';
import { violation } from './frames.ts';
import { SupervisedWorker, type WorkerExit } from './graph-worker.ts';
import { eventCost } from './send-window.ts';
import type { Chunk, RunJob, RunOutcome } from './worker-pool.ts';

/** Maximum time that a graph may take to end after an abort. */
const stopTimeoutMs = 5_000;

/**
 * A supervised run worker and the runs that it executes.
 *
 * Invariant: a run is assigned to one worker, and its outcome is reported once.
 *
 *   1. `put` sends the run to the worker.
 *   2. The worker sends chunks, then the outcome. The parent process then removes the run.
 *   3. `stop` sends `cancel`.
 *   4. If the run has not ended five seconds later, its outcome is reported anyway and the run is abandoned. The
 *      worker then accepts no further runs and is killed as soon as all its other runs have ended.
 *   5. If the process ends, each of its runs is lost, except for runs that were being stopped. If the worker itself
 *      caused the loss, the reported cause is `shared-worker` in two cases: if the worker had several runs, or if an
 *      earlier run was stopped or failed in it, because nodes of that run may still execute.
 */
export class RunWorker {
  readonly process: SupervisedWorker;
  readonly #runs = new Map<number, RunInPool>();
  readonly #onChange: () => void;
  /** Whether the worker executes an exclusive run and therefore accepts no other run. */
  #isExclusive = false;
  #isRetiring = false;
  /** Whether a run was stopped or failed in this process. Its nodes may still execute. */
  #mayRunLeftoverCode = false;

  constructor(
    options: ConstructorParameters<typeof SupervisedWorker>[0],
    hooks: {
      readonly onReady: (loadErrors: Readonly<Record<string, string>>) => void;
      readonly onExit: (exit: WorkerExit) => void;
      /** Called when a slot may have become free. */
      readonly onChange: () => void;
    },
  ) {
    this.#onChange = hooks.onChange;
    this.process = new SupervisedWorker(options, {
      onReady: (loadErrors) => {
        hooks.onReady(loadErrors);
        hooks.onChange();
      },
      onMessage: (message) => {
        if (message.kind !== 'chunks' && message.kind !== 'traced' && message.kind !== 'ended') {
          throw violation(`a message '${message.kind}' of a worker for runs`);
        }
        const run = this.#runs.get(message.key);
        if (run === undefined) throw violation(`a message '${message.kind}' of a run that it does not have`);
        if (message.kind === 'ended') this.#remove(run, message.outcome);
        else if (run.abandoned) return;
        else if (message.kind === 'traced') run.onChildRuns?.(message.traced);
        else if (!run.feed.put(message.chunks)) throw violation('more events than the send window allows');
      },
      onExit: (exit) => {
        this.#loseRuns(exit);
        hooks.onExit(exit);
        hooks.onChange();
      },
    });
  }

  get size(): number {
    return this.#runs.size;
  }

  /** Returns how many more runs the worker can accept, if it may execute at most `max` runs. */
  countFreeSlots(max: number): number {
    return this.process.ready && !this.#isExclusive && !this.#isRetiring ? Math.max(0, max - this.#runs.size) : 0;
  }

  /** Whether the worker has no runs and cannot still be executing nodes of an earlier run. */
  get isClean(): boolean {
    return this.#runs.size === 0 && !this.#mayRunLeftoverCode;
  }

  put(run: RunInPool): void {
    const { alone, timeoutMs, ...job } = run.job;
    this.#runs.set(run.key, run);
    if (alone) this.#isExclusive = true;
    this.process.send({ kind: 'run', key: run.key, job });
    run.after(timeoutMs, () => this.stop(run, 'timeout'));
  }

  has(run: RunInPool): boolean {
    return this.#runs.get(run.key) === run;
  }

  acknowledge(run: RunInPool, bytes: number): void {
    this.process.send({ kind: 'ack', key: run.key, bytes });
  }

  stop(run: RunInPool, why: 'cancelled' | 'timeout'): void {
    if (!this.has(run) || run.stopping !== undefined) return;
    run.stopping = why;
    this.process.send({ kind: 'cancel', key: run.key, why });
    run.after(stopTimeoutMs, () => this.#abandon(run, why));
  }

  #abandon(run: RunInPool, why: 'cancelled' | 'timeout'): void {
    run.abandoned = true;
    this.#isRetiring = true;
    void run.end({ kind: why });
    this.#killIfDone();
  }

  #remove(run: RunInPool, outcome: RunOutcome): void {
    this.#runs.delete(run.key);
    this.#isExclusive = false;
    if (outcome.kind !== 'finished') this.#mayRunLeftoverCode = true;
    if (!run.abandoned) void run.end(outcome);
    this.#killIfDone();
    this.#onChange();
  }

  #killIfDone(): void {
    if (!this.#isRetiring || [...this.#runs.values()].some((run) => !run.abandoned)) return;
    this.process.kill('external', 'a stopped run did not end');
  }

  #loseRuns({ cause, reason }: WorkerExit): void {
    const runs = [...this.#runs.values()];
    this.#runs.clear();
    this.#isExclusive = false;
    this.#isRetiring = false;
    const mayBeOtherRun = cause === 'worker' && (runs.length > 1 || this.#mayRunLeftoverCode);
    this.#mayRunLeftoverCode = false;
    for (const run of runs) {
      const message = `The worker process of the run ended: ${reason}.`;
      void run.end(
        run.stopping !== undefined
          ? { kind: run.stopping }
          : { kind: 'lost', cause: mayBeOtherRun ? 'shared-worker' : cause, message },
      );
    }
  }
}

/** The parent process's record of one attempt: its feed of chunks, its timers and its outcome. */
export class RunInPool {
  readonly key: number;
  readonly job: RunJob;
  readonly feed: RunFeed;
  readonly onChildRuns: ((traced: ChildRunBatch) => void) | undefined;
  readonly outcome: Promise<RunOutcome>;
  /** Set when the run is cancelled or times out. The run then ends with this outcome even if the process dies. */
  stopping: 'cancelled' | 'timeout' | undefined;
  /**
   * Whether the outcome was reported before the run ended in the worker. The code of the run may still execute there.
   */
  abandoned = false;
  readonly #timers: NodeJS.Timeout[] = [];
  #resolve!: (outcome: RunOutcome) => void;

  constructor(
    key: number,
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    onChildRuns: ((traced: ChildRunBatch) => void) | undefined,
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

  /** Resolves `outcome` when all chunks have been consumed. Only the first call has an effect. */
  async end(outcome: RunOutcome): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    await this.feed.settled();
    // If `take` has rejected, events are missing from the log. Therefore the outcome must not be `finished`.
    this.#resolve(this.feed.broken && outcome.kind === 'finished' ? { kind: 'cancelled' } : outcome);
  }
}

export interface RunFeedOptions {
  /** Maximum cost of unacknowledged events. */
  readonly limitBytes: number;
  /** Called with the cost of each batch after `take` has resolved or rejected. */
  readonly acknowledge: (bytes: number) => void;
  /** Called once, when `take` rejects. The feed drops all later chunks. */
  readonly failed: () => void;
}

/**
 * Passes the chunks of one run to `take`, in order and one batch at a time. Chunks that arrive in the meantime form the
 * next batch; the send window limits its size.
 */
export class RunFeed {
  readonly #take: (chunks: readonly Chunk[]) => Promise<void>;
  readonly #options: RunFeedOptions;
  #pending: (readonly Chunk[])[] = [];
  #unacknowledgedBytes = 0;
  #draining: Promise<void> | undefined;
  #isBroken = false;

  constructor(take: (chunks: readonly Chunk[]) => Promise<void>, options: RunFeedOptions) {
    this.#take = take;
    this.#options = options;
  }

  /** Whether `take` has rejected. */
  get broken(): boolean {
    return this.#isBroken;
  }

  /**
   * Adds received chunks.
   *
   * @returns whether the send window allowed the worker to send them.
   */
  put(chunks: readonly Chunk[]): boolean {
    this.#unacknowledgedBytes += sumCosts(chunks);
    if (this.#unacknowledgedBytes > this.#options.limitBytes) return false;
    this.#pending.push(chunks);
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = undefined;
    });
    return true;
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
      if (!this.#isBroken) {
        try {
          await this.#take(chunks);
        } catch {
          this.#isBroken = true;
          this.#options.failed();
        }
      }
      const bytes = sumCosts(chunks);
      this.#unacknowledgedBytes -= bytes;
      this.#options.acknowledge(bytes);
    }
  }
}

function sumCosts(chunks: readonly Chunk[]): number {
  return chunks.reduce((sum, chunk) => sum + eventCost(chunk), 0);
}
