import { violation } from './frames.ts';
import type { WorkerExit } from './graph-worker.ts';
import { packedCost, unpackChunks } from './packed-chunks.ts';
import type { RunInPool } from './run-in-pool.ts';
import { SupervisedWorker } from './supervised-worker.ts';
import type { RunOutcome } from './worker-pool.ts';

/** Time that a graph has to end after an abort. */
const stopTimeoutMs = 5_000;

/**
 * A supervised run worker and the runs that it executes.
 *
 * Invariant: a run is assigned to one worker, and its outcome is reported once.
 *
 *   1. `put` sends the run to the worker.
 *   2. The worker sends chunks, then the outcome. The front then removes the run.
 *   3. `stop` sends `cancel`.
 *   4. If the run has not ended five seconds later, its outcome is reported anyway and the run is abandoned. The worker
 *      then accepts no further run and is killed as soon as all its other runs have ended.
 *   5. If the process ends, each of its runs is lost, except runs that were being stopped. If the worker is to blame,
 *      the blame is `shared` if it had several runs, or if an earlier run was stopped or failed there, because nodes of
 *      that run may still execute.
 */
export class RunWorker {
  readonly process: SupervisedWorker;
  readonly #runs = new Map<number, RunInPool>();
  readonly #onChange: () => void;
  /** Whether the worker has an exclusive run and accepts no other run. */
  #isExclusive = false;
  #retiring = false;
  /** Whether a run was stopped or failed in this process. Its nodes may still execute. */
  #hasRemains = false;

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
        else if (run.feed.admit(packedCost(message.packed))) run.feed.put(unpackChunks(message.packed));
        else throw violation('more events than the send window allows');
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

  /** Number of runs that the worker can accept if it may hold `max` runs. */
  room(max: number): number {
    return this.process.ready && !this.#isExclusive && !this.#retiring ? Math.max(0, max - this.#runs.size) : 0;
  }

  /** Whether the worker has no run and no nodes of an earlier run can still execute. */
  get isClean(): boolean {
    return this.#runs.size === 0 && !this.#hasRemains;
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
    this.#retiring = true;
    void run.end({ kind: why });
    this.#killIfDone();
  }

  #remove(run: RunInPool, outcome: RunOutcome): void {
    this.#runs.delete(run.key);
    this.#isExclusive = false;
    if (outcome.kind !== 'finished') this.#hasRemains = true;
    if (!run.abandoned) void run.end(outcome);
    this.#killIfDone();
    this.#onChange();
  }

  #killIfDone(): void {
    if (!this.#retiring || [...this.#runs.values()].some((run) => !run.abandoned)) return;
    this.process.kill('outside', 'a stopped run did not end');
  }

  #loseRuns({ blame, reason }: WorkerExit): void {
    const runs = [...this.#runs.values()];
    this.#runs.clear();
    this.#isExclusive = false;
    this.#retiring = false;
    const shared = blame === 'self' && (runs.length > 1 || this.#hasRemains);
    this.#hasRemains = false;
    for (const run of runs) {
      const message = `The worker process of the run ended: ${reason}.`;
      void run.end(
        run.stopping !== undefined
          ? { kind: run.stopping }
          : { kind: 'lost', blame: shared ? 'shared' : blame, message },
      );
    }
  }
}
