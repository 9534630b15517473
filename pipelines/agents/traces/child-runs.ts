/**
 * From the workers to the log: the runs inside of runs of graphs.
 *
 * Invariant: nothing here keeps a run of a graph waiting or ends it. What waits is bounded; beyond, it is dropped and counted.
 *
 *   1. A batch comes from a worker. The first that comes while its run goes on brings the root with it, so that the trace is seen.
 *   2. Once a second what waits goes into the log, together for each sender (`take-into-traces.ts`).
 *   3. A log that is away is tried again.
 *   4. When an attempt is over, the runs that its worker left open, because it has gone, end with that as their error.
 *
 * A crash of this process loses what waits. The next attempt tells its own runs, under ids of their own, below the same root.
 */
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptPorts } from '../../ingest/accept/accept-drafts.ts';
import type { Sender } from '../../ingest/accept/publish-runs.ts';
import { formatDottedOrderSegment } from '../../ingest/run-event/dotted-order.ts';
import { formatTime, parseTime } from '../../ingest/run-event/times.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import { formOf, type HiddenValues, projectOf, rootMembers, rootPlace } from './root-run.ts';
import { senderKey, type TraceRecord, takeIntoTraces, untilNextTakeMs } from './take-into-traces.ts';
import type { ChildRun, TracedRuns, TraceMarks, TraceOrder } from './trace-order.ts';

export interface ChildRunPorts {
  readonly accept: AcceptPorts;
  readonly defaultSender: Sender;
  readonly logger: Logger;
  /** Most runs inside of one; 0: none are traced. */
  readonly mostRuns: number;
  readonly mostCharacters: number;
  /** Whether those of runs without a thread keep inputs and outputs. */
  readonly tracesStatelessValues: boolean;
  readonly hidden?: HiddenValues;
}

/** What becomes of the runs inside of one attempt. */
export interface TracedAttempt {
  /** For the worker. */
  readonly order: TraceOrder;
  take(batch: TracedRuns): void;
  /** Nothing more comes. What the worker, which may have gone, has not ended ends with `reason`. */
  ended(reason: string): void;
  readonly marks: TraceMarks;
}

export interface ChildRuns {
  /** Undefined where nothing inside of runs is traced. */
  open(run: ClaimedRun): TracedAttempt | undefined;
  /** Sends what waits, once more. */
  close(): Promise<void>;
}

interface Waiting {
  readonly sender: Sender;
  readonly traceId: string;
  readonly project: string;
  readonly run: ChildRun;
}

const mostWaitingCharacters = 64 * 1024 * 1024;

export function traceChildRuns(ports: ChildRunPorts): ChildRuns {
  const { accept, defaultSender, logger, mostRuns, mostCharacters, tracesStatelessValues } = ports;
  let waiting: Waiting[] = [];
  let waitingCharacters = 0;
  let timer: NodeJS.Timeout | undefined;
  let sending: Promise<void> | undefined;

  function put(item: Waiting): boolean {
    const characters = sizeOf(item.run);
    if (waitingCharacters + characters > mostWaitingCharacters) return false;
    waiting.push(item);
    waitingCharacters += characters;
    timer ??= setTimeout(send, untilNextTakeMs()).unref();
    return true;
  }

  function send(): void {
    timer = undefined;
    sending ??= sendWaiting().finally(() => {
      sending = undefined;
      if (waiting.length > 0) timer ??= setTimeout(send, untilNextTakeMs()).unref();
    });
  }

  async function sendWaiting(): Promise<void> {
    const items = waiting;
    waiting = [];
    const senders = new Map<string, Waiting[]>();
    for (const item of items) {
      const key = senderKey(item.sender);
      const ofSender = senders.get(key);
      if (ofSender === undefined) senders.set(key, [item]);
      else ofSender.push(item);
    }
    for (const ofSender of senders.values()) {
      try {
        const left = await takeIntoTraces((ofSender[0] as Waiting).sender, ofSender.map(recordOf), accept);
        if (left.length > 0) {
          logger.warn({ runs: left.length }, 'runs inside of runs of graphs could not be taken into their traces');
        }
        for (const { run } of ofSender) waitingCharacters -= sizeOf(run);
      } catch (err) {
        const again = isRunlakeError(err) && err.retryable;
        logger.warn({ err, runs: ofSender.length, again }, 'runs inside of runs of graphs are not in the log');
        if (again) waiting.push(...ofSender);
        else for (const { run } of ofSender) waitingCharacters -= sizeOf(run);
      }
    }
  }

  return {
    open(run) {
      if (mostRuns === 0) return undefined;
      const { runId, kwargs } = run;
      const values = !kwargs.temporary || tracesStatelessValues;
      const rootMicros = parseTime(run.startedAt) as number;
      const root = formatDottedOrderSegment(rootMicros, runId);
      const shared = { sender: { ...defaultSender, ...run.sender }, traceId: runId, project: projectOf(run) };
      /** Places of runs that the worker has not ended. */
      const left = new Map<string, string>();
      let marks: TraceMarks = { droppedRuns: 0, droppedValues: 0 };
      let overflow = 0;
      let rootTold = false;
      const tell = (child: ChildRun) => {
        if (!put({ ...shared, run: child })) overflow += 1;
      };
      return {
        order: {
          root,
          rootMicros,
          values,
          thread: !kwargs.temporary,
          mostRuns,
          mostCharacters,
          mostRunBytes: accept.config.maxRunBytes,
        },
        take({ runs, ...ofWorker }) {
          marks = ofWorker;
          if (!rootTold && runs.some(({ open }) => open)) {
            rootTold = true;
            tell({
              kind: 'post',
              runId,
              place: rootPlace(run),
              ...rootMembers(run, formOf(values, ports.hidden)),
              open: true,
            });
          }
          for (const child of runs) {
            if (child.open) left.set(child.runId, child.place);
            else left.delete(child.runId);
            tell(child);
          }
        },
        ended(reason) {
          const now = formatTime(Date.now() * 1_000);
          for (const [id, place] of left) {
            const members = `"end_time":"${now}","error":${JSON.stringify(reason)}`;
            tell({ kind: 'patch', runId: id, place, members, values: '', open: false });
          }
          left.clear();
        },
        get marks() {
          return { ...marks, droppedRuns: marks.droppedRuns + overflow };
        },
      };
    },
    async close() {
      clearTimeout(timer);
      await sending;
      clearTimeout(timer);
      if (waiting.length > 0) await sendWaiting();
      if (waiting.length > 0)
        logger.warn({ runs: waiting.length }, 'runs inside of runs of graphs are lost at the end');
    },
  };
}

function recordOf({ run, traceId, project }: Waiting): TraceRecord {
  const { kind, runId, place, members, values } = run;
  return {
    kind,
    runId,
    traceId,
    project,
    parts: (way) => ({ place, members, values: way.values ? values : '' }),
  };
}

function sizeOf({ place, members, values }: ChildRun): number {
  return place.length + members.length + values.length;
}
