import { violation } from './frames.ts';
import type { Verdict } from './graph-worker.ts';
import { KeptWorker } from './kept-worker.ts';
import { packedCost, unpackChunks } from './packed-chunks.ts';
import type { RunInPool } from './run-in-pool.ts';
import type { RunOutcome } from './worker-pool.ts';

/** How long a graph may take to hear that it is to stop. */
const stopWithinMs = 5_000;

/**
 * A worker process with the runs in it.
 *
 * Invariant: a run is in one place, and its end is told once. 1. It is put in. 2. Its chunks come, then its outcome, and it is out. Or it
 * is stopped: 3. the worker is told; 4. five seconds later its end is told all the same. If nothing else is in the worker, that is killed;
 * else no further run comes in, and it is killed when those beside have ended, who are not harmed. Or the process goes: 5. each run in it
 * is lost. Blame is `shared` if there were several, or if a run ended there before its time: its nodes may still execute.
 */
export class RunPlace {
  readonly worker: KeptWorker;
  readonly #runs = new Map<number, RunInPool>();
  readonly #onChange: () => void;
  /** Holds a run that nothing may be beside. */
  #alone = false;
  #retiring = false;
  /** A run was stopped or failed in this process, and nodes of it may still execute. */
  #hasRemains = false;

  constructor(
    options: ConstructorParameters<typeof KeptWorker>[0],
    hooks: {
      readonly onReady: (faults: Readonly<Record<string, string>>) => void;
      readonly onGone: (verdict: Verdict) => void;
      /** There may be room now. */
      readonly onChange: () => void;
    },
  ) {
    this.#onChange = hooks.onChange;
    this.worker = new KeptWorker(options, {
      onReady: (faults) => {
        hooks.onReady(faults);
        hooks.onChange();
      },
      onMessage: (message) => {
        if (message.kind !== 'chunks' && message.kind !== 'traced' && message.kind !== 'ended') {
          throw violation(`a message '${message.kind}' of a worker for runs`);
        }
        const run = this.#runs.get(message.key);
        if (run === undefined) throw violation(`a message '${message.kind}' of a run that it does not have`);
        if (message.kind === 'ended') this.#out(run, message.outcome);
        else if (run.abandoned) return;
        else if (message.kind === 'traced') run.takeTraced?.(message.traced);
        else if (run.feed.admit(packedCost(message.packed))) run.feed.put(unpackChunks(message.packed));
        else throw violation('more events than the send window allows');
      },
      onGone: (verdict) => {
        this.#lose(verdict);
        hooks.onGone(verdict);
        hooks.onChange();
      },
    });
  }

  get size(): number {
    return this.#runs.size;
  }

  /** Runs that could be put in, of `most`. */
  room(most: number): number {
    return this.worker.ready && !this.#alone && !this.#retiring ? Math.max(0, most - this.#runs.size) : 0;
  }

  /** No run is in it, and nothing of an earlier one. */
  get isClean(): boolean {
    return this.#runs.size === 0 && !this.#hasRemains;
  }

  put(run: RunInPool): void {
    const { alone, timeoutMs, ...job } = run.job;
    this.#runs.set(run.key, run);
    if (alone) this.#alone = true;
    this.worker.tell({ kind: 'run', key: run.key, job });
    run.after(timeoutMs, () => this.stop(run, 'timeout'));
  }

  has(run: RunInPool): boolean {
    return this.#runs.get(run.key) === run;
  }

  acknowledge(run: RunInPool, bytes: number): void {
    this.worker.tell({ kind: 'ack', key: run.key, bytes });
  }

  stop(run: RunInPool, why: 'cancelled' | 'timeout'): void {
    if (!this.has(run) || run.stopping !== undefined) return;
    run.stopping = why;
    this.worker.tell({ kind: 'cancel', key: run.key, why });
    run.after(stopWithinMs, () => this.#abandon(run, why));
  }

  #abandon(run: RunInPool, why: 'cancelled' | 'timeout'): void {
    run.abandoned = true;
    this.#retiring = true;
    void run.end({ kind: why });
    this.#killIfDone();
  }

  #out(run: RunInPool, outcome: RunOutcome): void {
    this.#runs.delete(run.key);
    this.#alone = false;
    if (outcome.kind !== 'finished') this.#hasRemains = true;
    if (!run.abandoned) void run.end(outcome);
    this.#killIfDone();
    this.#onChange();
  }

  #killIfDone(): void {
    if (!this.#retiring || [...this.#runs.values()].some((run) => !run.abandoned)) return;
    this.worker.kill('outside', 'a run that was stopped did not end');
  }

  #lose({ blame, reason }: Verdict): void {
    const runs = [...this.#runs.values()];
    this.#runs.clear();
    this.#alone = false;
    this.#retiring = false;
    const shared = blame === 'self' && (runs.length > 1 || this.#hasRemains);
    this.#hasRemains = false;
    for (const run of runs) {
      const message = `The process that executed the run is gone: ${reason}.`;
      void run.end(
        run.stopping !== undefined
          ? { kind: run.stopping }
          : { kind: 'lost', blame: shared ? 'shared' : blame, message },
      );
    }
  }
}
