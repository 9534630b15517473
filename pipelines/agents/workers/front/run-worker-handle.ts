import { createViolationError } from '../frames.ts';
import type { MessageFromWorker, RunOutcome } from '../messages.ts';
import type { RunSlot } from './run-slot.ts';
import { type WorkerExit, WorkerHandle, type WorkerOptions } from './worker-handle.ts';

/** Maximum time for a graph to end after an abort. */
const stopTimeoutMs = 5_000;

/**
 * The handle of a run worker, with the slots of the runs that it executes.
 *
 * Invariant: a run is assigned to one worker, and its outcome is reported once.
 *
 *   1. `put` sends the run to the worker.
 *   2. The worker sends chunks, then the outcome. The parent process then removes the run.
 *   3. `stopRun` sends `cancel`.
 *   4. If the run has not ended five seconds later, its outcome is reported anyway and the run is abandoned. The worker
 *      accepts no further run until the abandoned run ends. It is killed as soon as it has only abandoned runs.
 *   5. If the process ends, each of its runs is lost, except runs that were being stopped. If the worker itself caused
 *      the loss, the reported cause is `shared-worker` if it had several runs, or if an earlier run was stopped or
 *      failed there, because nodes of that run may still execute.
 */
export class RunWorkerHandle extends WorkerHandle {
  readonly #slots = new Map<number, RunSlot>();
  readonly #onChange: () => void;
  /** Whether the worker has an exclusive run and accepts no other run. */
  #isExclusive = false;
  /** Whether a run was stopped or failed in this process. Its nodes may still execute. */
  #mayRunLeftoverCode = false;

  constructor(
    options: () => WorkerOptions,
    hooks: {
      /** Returns the reason to replace the process, which then gets no run. */
      readonly onReady: (loadErrors: Readonly<Record<string, string>>) => string | undefined;
      readonly onExit: (exit: WorkerExit) => void;
      /** Called when a slot may have become free. */
      readonly onChange: () => void;
    },
  ) {
    super(options, {
      onReady: (loadErrors) => {
        const reason = hooks.onReady(loadErrors);
        if (reason !== undefined) this.kill('external', reason);
        else hooks.onChange();
      },
      onMessage: (message) => this.#receive(message),
      onExit: (exit) => {
        this.#loseRuns(exit);
        hooks.onExit(exit);
        hooks.onChange();
      },
    });
    this.#onChange = hooks.onChange;
  }

  /** Number of runs in the worker. */
  get size(): number {
    return this.#slots.size;
  }

  /** Returns how many more runs the worker can accept if its maximum is `max` runs. */
  countFreeSlots(max: number): number {
    if (!this.ready || this.#isExclusive || [...this.#slots.values()].some((slot) => slot.abandoned)) return 0;
    return Math.max(0, max - this.#slots.size);
  }

  /** Whether the worker has no run and no nodes of an earlier run can still execute. */
  get isClean(): boolean {
    return this.#slots.size === 0 && !this.#mayRunLeftoverCode;
  }

  put(slot: RunSlot): void {
    const { alone, timeoutMs, ...job } = slot.job;
    this.#slots.set(slot.key, slot);
    if (alone) this.#isExclusive = true;
    this.send({ kind: 'run', key: slot.key, job });
    slot.after(timeoutMs, () => this.stopRun(slot, 'timeout'));
  }

  has(slot: RunSlot): boolean {
    return this.#slots.get(slot.key) === slot;
  }

  acknowledge(slot: RunSlot, bytes: number): void {
    this.send({ kind: 'ack', key: slot.key, bytes });
  }

  stopRun(slot: RunSlot, why: 'cancelled' | 'timeout'): void {
    if (!this.has(slot) || slot.stopping !== undefined) return;
    slot.stopping = why;
    this.send({ kind: 'cancel', key: slot.key, why });
    slot.after(stopTimeoutMs, () => this.#abandon(slot, why));
  }

  /** @throws WORKER_PROTOCOL_VIOLATED */
  #receive(message: MessageFromWorker): void {
    if (message.kind !== 'chunks' && message.kind !== 'traced' && message.kind !== 'ended') {
      throw createViolationError(`a message '${message.kind}' of a worker for runs`);
    }
    const slot = this.#slots.get(message.key);
    if (slot === undefined) throw createViolationError(`a message '${message.kind}' of a run that it does not have`);
    if (message.kind === 'ended') {
      slot.nodes = message.nodes;
      this.#remove(slot, toStoppedOutcome(slot, message.outcome));
    } else if (slot.abandoned) return;
    else if (message.kind === 'traced') slot.onChildRuns?.(message.traced);
    else if (!slot.put(message.chunks)) throw createViolationError('more events than the send window allows');
  }

  #abandon(slot: RunSlot, why: 'cancelled' | 'timeout'): void {
    slot.abandoned = true;
    void slot.end({ kind: why });
    this.#killIfAbandoned();
  }

  #remove(slot: RunSlot, outcome: RunOutcome): void {
    this.#slots.delete(slot.key);
    this.#isExclusive = false;
    if (outcome.kind !== 'finished') this.#mayRunLeftoverCode = true;
    if (!slot.abandoned) void slot.end(outcome);
    this.#killIfAbandoned();
    this.#onChange();
  }

  #killIfAbandoned(): void {
    const slots = [...this.#slots.values()];
    if (slots.length > 0 && slots.every((slot) => slot.abandoned)) this.kill('external', 'a stopped run did not end');
  }

  #loseRuns({ cause, reason }: WorkerExit): void {
    const slots = [...this.#slots.values()];
    this.#slots.clear();
    this.#isExclusive = false;
    const mayBeOtherRun = cause === 'worker' && (slots.length > 1 || this.#mayRunLeftoverCode);
    this.#mayRunLeftoverCode = false;
    for (const slot of slots) {
      const message = `The worker process of the run ended: ${reason}.`;
      void slot.end(
        slot.stopping !== undefined
          ? { kind: slot.stopping }
          : { kind: 'lost', cause: mayBeOtherRun ? 'shared-worker' : cause, message },
      );
    }
  }
}

/** Converts the failure that a worker reports for a run that this process has stopped. */
function toStoppedOutcome({ stopping }: RunSlot, outcome: RunOutcome): RunOutcome {
  if (stopping === undefined || outcome.kind !== 'failed' || outcome.error !== stopping) return outcome;
  const { error: _, message: __, ...state } = outcome;
  return { ...state, kind: stopping };
}
