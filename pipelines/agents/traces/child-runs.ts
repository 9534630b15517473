/**
 * Writes the child runs of graph runs, which workers report, to the log.
 *
 * Invariant: tracing never delays or ends a graph run. Buffer and open runs are bounded; runs that exceed the bounds
 * are dropped and counted. A worker that reports more runs than its tracer may collect violates the protocol, because
 * graph code can forge its messages.
 *
 *   1. A batch arrives from a worker. With the first batch that contains an open child run, the root run is written as
 *      well, so that an active trace is visible.
 *   2. Once a second the buffered runs are written to the log, one batch per sender (`take-into-traces.ts`).
 *   3. If the log is unavailable, the batch is retried.
 *   4. At the end of an attempt, the parent process ends child runs that are still open, for example because the worker
 *      died, with an error.
 *
 * A crash of this process loses the buffered runs. The next attempt writes its own child runs, with new ids, below the
 * same root.
 */
import { groupBy } from '../../../infra/collections/group-by.ts';
import { isTransient } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptDeps } from '../../ingest/accept/accept-drafts.ts';
import type { Sender } from '../../ingest/accept/draft.ts';
import { formatDottedOrderSegment } from '../../ingest/run-event/dotted-order.ts';
import { formatTime, parseTime } from '../../ingest/run-event/times.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import { createViolationError } from '../workers/frames.ts';
import {
  chooseTraceOptions,
  encodeRootLocation,
  encodeRootMembers,
  findProject,
  type HiddenValues,
} from './root-run.ts';
import { buildSenderKey, getMsToNextFlush, type TraceRecord, writeTraceRecords } from './take-into-traces.ts';
import type { ChildRun, ChildRunBatch, TraceInstructions, TraceMarks } from './trace-order.ts';

export interface ChildRunDeps {
  readonly accept: AcceptDeps;
  /** Trace owner for runs without a sender, such as runs of a cron without an end user. */
  readonly defaultSender: Sender;
  readonly logger: Logger;
  /** Maximum child runs of one graph run. If 0, child runs are not traced. */
  readonly maxRuns: number;
  readonly maxCharacters: number;
  readonly hidden?: HiddenValues;
}

/** Tracing of the child runs of one attempt. */
export interface TracedAttempt {
  /** Instructions for the worker. */
  readonly order: TraceInstructions;
  /** @throws WORKER_PROTOCOL_VIOLATED if the worker has reported each of the maximum number of runs twice. */
  take(batch: ChildRunBatch): void;
  /** Completes the attempt. Child runs that are still open end with the error `reason`. */
  ended(reason: string): void;
  readonly marks: TraceMarks;
}

export interface ChildRunTracer {
  /** Starts the tracing of an attempt. Returns undefined if child runs are not traced. */
  open(run: ClaimedRun): TracedAttempt | undefined;
  /** Tries again to write the buffered runs. */
  close(): Promise<void>;
}

interface PendingRun {
  readonly sender: Sender;
  readonly traceId: string;
  readonly project: string;
  readonly run: ChildRun;
}

const maxPendingCharacters = 64 * 1024 * 1024;
/** Maximum characters of the open child runs of one attempt. */
const maxOpenRunCharacters = 16 * 1024 * 1024;
/** Estimated memory of the objects of a run, in addition to its text. */
const runOverheadCharacters = 1_000;

export function createChildRunTracer(deps: ChildRunDeps): ChildRunTracer {
  const buffer = new RunBuffer(deps);
  return {
    open: (run) => (deps.maxRuns === 0 ? undefined : new Attempt(deps, run, buffer)),
    close: () => buffer.close(),
  };
}

/** Steps 2 and 3. */
class RunBuffer {
  readonly #deps: ChildRunDeps;
  #pending: PendingRun[] = [];
  #characters = 0;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;

  constructor(deps: ChildRunDeps) {
    this.#deps = deps;
  }

  /** Returns false if the buffer is full. */
  put(item: PendingRun): boolean {
    const characters = countCharacters(item.run);
    if (this.#characters + characters > maxPendingCharacters) return false;
    this.#pending.push(item);
    this.#characters += characters;
    this.#scheduleSending();
    return true;
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#sending;
    clearTimeout(this.#timer);
    if (this.#pending.length > 0) await this.#sendPending();
    if (this.#pending.length > 0) this.#deps.logger.warn({ runs: this.#pending.length }, 'child runs lost at shutdown');
  }

  #scheduleSending(): void {
    this.#timer ??= setTimeout(() => this.#send(), getMsToNextFlush()).unref();
  }

  #send(): void {
    this.#timer = undefined;
    this.#sending ??= this.#sendPending()
      .catch((err) => this.#deps.logger.error({ err }, 'child runs lost'))
      .finally(() => {
        this.#sending = undefined;
        if (this.#pending.length > 0) this.#scheduleSending();
      });
  }

  async #sendPending(): Promise<void> {
    const { accept, logger } = this.#deps;
    const items = this.#pending;
    this.#pending = [];
    const runsBySender = groupBy(items, ({ sender }) => buildSenderKey(sender));
    for (const runsOfSender of runsBySender.values()) {
      const { sender } = runsOfSender[0] as PendingRun;
      try {
        const rejected = await writeTraceRecords(sender, runsOfSender.map(toTraceRecord), accept);
        if (rejected.length > 0) logger.warn({ runs: rejected.length }, 'child runs rejected; not retried');
      } catch (err) {
        const retryable = isTransient(err);
        logger.warn({ err, runs: runsOfSender.length, retryable }, 'child runs not written to the log');
        if (retryable) {
          this.#pending = this.#pending.concat(runsOfSender);
          continue;
        }
      }
      for (const { run } of runsOfSender) this.#characters -= countCharacters(run);
    }
  }
}

class Attempt implements TracedAttempt {
  readonly order: TraceInstructions;
  readonly #run: ClaimedRun;
  readonly #hidden: HiddenValues | undefined;
  readonly #buffer: RunBuffer;
  readonly #shared: Omit<PendingRun, 'run'>;
  /** Open child runs: JSON of their location by run id. */
  readonly #openRuns = new Map<string, string>();
  #openRunCharacters = 0;
  #marks: TraceMarks = { droppedRuns: 0, droppedValues: 0 };
  #overflowCount = 0;
  #reportedRuns = 0;
  #isRootSent = false;

  constructor(
    { accept, defaultSender, maxRuns, maxCharacters, hidden }: ChildRunDeps,
    run: ClaimedRun,
    buffer: RunBuffer,
  ) {
    const { runId, kwargs } = run;
    const rootMicros = parseTime(run.startedAt) as number;
    this.#run = run;
    this.#hidden = hidden;
    this.#buffer = buffer;
    this.#shared = { sender: { ...defaultSender, ...run.sender }, traceId: runId, project: findProject(run) };
    this.order = {
      root: formatDottedOrderSegment(rootMicros, runId),
      rootMicros,
      // Omit inputs and outputs of a temporary run, because its caller expects that nothing of the run is kept.
      values: !kwargs.temporary,
      thread: !kwargs.temporary,
      maxRuns,
      maxCharacters,
      maxRunBytes: accept.config.maxRunBytes,
    };
  }

  get marks(): TraceMarks {
    return { ...this.#marks, droppedRuns: this.#marks.droppedRuns + this.#overflowCount };
  }

  take({ runs, ...marks }: ChildRunBatch): void {
    const { maxRuns } = this.order;
    this.#reportedRuns += runs.length;
    if (this.#reportedRuns > 2 * maxRuns) throw createViolationError(`more than ${maxRuns} traced runs`);
    this.#marks = marks;
    if (!this.#isRootSent && runs.some(({ open }) => open)) {
      this.#isRootSent = true;
      this.#enqueue(this.#buildRoot());
    }
    for (const child of runs) {
      if (!child.open) this.#close(child.runId);
      else if (!this.#keepOpen(child)) {
        this.#overflowCount += 1;
        continue;
      }
      this.#enqueue(child);
    }
  }

  ended(reason: string): void {
    const members = `"end_time":"${formatTime(Date.now() * 1_000)}","error":${JSON.stringify(reason)}`;
    for (const [runId, location] of this.#openRuns) {
      this.#enqueue({ kind: 'patch', runId, location, members, values: '', open: false });
    }
    this.#openRuns.clear();
  }

  #buildRoot(): ChildRun {
    return {
      kind: 'post',
      runId: this.#run.runId,
      location: encodeRootLocation(this.#run),
      ...encodeRootMembers(this.#run, chooseTraceOptions(this.order.values, this.#hidden)),
      open: true,
    };
  }

  #enqueue(run: ChildRun): void {
    if (!this.#buffer.put({ ...this.#shared, run })) this.#overflowCount += 1;
  }

  /** @returns whether the run is within the limit. */
  #keepOpen({ runId, location }: ChildRun): boolean {
    this.#close(runId);
    if (this.#openRunCharacters + countOpenRunCharacters(location) > maxOpenRunCharacters) return false;
    this.#openRuns.set(runId, location);
    this.#openRunCharacters += countOpenRunCharacters(location);
    return true;
  }

  #close(runId: string): void {
    this.#openRunCharacters -= countOpenRunCharacters(this.#openRuns.get(runId));
    this.#openRuns.delete(runId);
  }
}

function toTraceRecord({ run, traceId, project }: PendingRun): TraceRecord {
  const { kind, runId, location, members, values } = run;
  return {
    kind,
    runId,
    traceId,
    project,
    parts: (way) => ({ location, members, values: way.values ? values : '' }),
  };
}

function countCharacters({ location, members, values }: ChildRun): number {
  return runOverheadCharacters + location.length + members.length + values.length;
}

function countOpenRunCharacters(location: string | undefined): number {
  return location === undefined ? 0 : runOverheadCharacters + location.length;
}
