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
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptDeps, Sender } from '../../ingest/accept/accept-drafts.ts';
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
  const { accept, defaultSender, logger, maxRuns, maxCharacters } = deps;
  let pending: PendingRun[] = [];
  let pendingCharacters = 0;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | undefined;

  function put(item: PendingRun): boolean {
    const characters = countCharacters(item.run);
    if (pendingCharacters + characters > maxPendingCharacters) return false;
    pending.push(item);
    pendingCharacters += characters;
    timer ??= setTimeout(send, getMsToNextFlush()).unref();
    return true;
  }

  function send(): void {
    timer = undefined;
    sending ??= sendPending()
      .catch((err) => logger.error({ err }, 'child runs lost'))
      .finally(() => {
        sending = undefined;
        if (pending.length > 0) timer ??= setTimeout(send, getMsToNextFlush()).unref();
      });
  }

  async function sendPending(): Promise<void> {
    const items = pending;
    pending = [];
    const runsBySender = groupBy(items, ({ sender }) => buildSenderKey(sender));
    for (const runsOfSender of runsBySender.values()) {
      try {
        const rejected = await writeTraceRecords(
          (runsOfSender[0] as PendingRun).sender,
          runsOfSender.map(toTraceRecord),
          accept,
        );
        if (rejected.length > 0) {
          logger.warn({ runs: rejected.length }, 'child runs rejected; not retried');
        }
        for (const { run } of runsOfSender) pendingCharacters -= countCharacters(run);
      } catch (err) {
        const retryable = isRunlakeError(err) && err.retryable;
        logger.warn({ err, runs: runsOfSender.length, retryable }, 'child runs not written to the log');
        if (retryable) pending = pending.concat(runsOfSender);
        else for (const { run } of runsOfSender) pendingCharacters -= countCharacters(run);
      }
    }
  }

  return {
    open(run) {
      if (maxRuns === 0) return undefined;
      const { runId, kwargs } = run;
      // Omit inputs and outputs of a temporary run, because its caller expects that nothing of the run is kept.
      const includesValues = !kwargs.temporary;
      const rootStartMicros = parseTime(run.startedAt) as number;
      const root = formatDottedOrderSegment(rootStartMicros, runId);
      const shared = { sender: { ...defaultSender, ...run.sender }, traceId: runId, project: findProject(run) };
      /** Open child runs: JSON of their location by run id. */
      const openRuns = new Map<string, string>();
      let marks: TraceMarks = { droppedRuns: 0, droppedValues: 0 };
      let openRunCharacters = 0;
      let overflowCount = 0;
      let reportedRuns = 0;
      let isRootSent = false;
      const enqueue = (child: ChildRun) => {
        if (!put({ ...shared, run: child })) overflowCount += 1;
      };
      const close = (id: string) => {
        openRunCharacters -= countOpenRunCharacters(openRuns.get(id));
        openRuns.delete(id);
      };
      /** @returns whether the run is within the limit. */
      const keepOpen = ({ runId: id, location }: ChildRun) => {
        close(id);
        if (openRunCharacters + countOpenRunCharacters(location) > maxOpenRunCharacters) return false;
        openRuns.set(id, location);
        openRunCharacters += countOpenRunCharacters(location);
        return true;
      };
      return {
        order: {
          root,
          rootMicros: rootStartMicros,
          values: includesValues,
          thread: !kwargs.temporary,
          maxRuns,
          maxCharacters,
          maxRunBytes: accept.config.maxRunBytes,
        },
        take({ runs, ...ofWorker }) {
          reportedRuns += runs.length;
          if (reportedRuns > 2 * maxRuns) throw createViolationError(`more than ${maxRuns} traced runs`);
          marks = ofWorker;
          if (!isRootSent && runs.some(({ open }) => open)) {
            isRootSent = true;
            enqueue({
              kind: 'post',
              runId,
              location: encodeRootLocation(run),
              ...encodeRootMembers(run, chooseTraceOptions(includesValues, deps.hidden)),
              open: true,
            });
          }
          for (const child of runs) {
            if (!child.open) close(child.runId);
            else if (!keepOpen(child)) {
              overflowCount += 1;
              continue;
            }
            enqueue(child);
          }
        },
        ended(reason) {
          const members = `"end_time":"${formatTime(Date.now() * 1_000)}","error":${JSON.stringify(reason)}`;
          for (const [id, location] of openRuns) {
            enqueue({ kind: 'patch', runId: id, location, members, values: '', open: false });
          }
          openRuns.clear();
        },
        get marks() {
          return { ...marks, droppedRuns: marks.droppedRuns + overflowCount };
        },
      };
    },
    async close() {
      clearTimeout(timer);
      await sending;
      clearTimeout(timer);
      if (pending.length > 0) await sendPending();
      if (pending.length > 0) logger.warn({ runs: pending.length }, 'child runs lost at shutdown');
    },
  };
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
