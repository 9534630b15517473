import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptPorts } from '../../ingest/accept/accept-drafts.ts';
import type { Sender } from '../../ingest/accept/publish-runs.ts';
import type { EndedRun } from '../runs/run-row.ts';
import { formOf, type HiddenValues, projectOf, rootMembers, rootPlace } from '../traces/root-run.ts';
import { senderKey, type TraceRecord, takeIntoTraces, untilNextTakeMs } from '../traces/take-into-traces.ts';
import type { TraceMarks } from '../traces/trace-order.ts';

/** `marks`: what is not in the trace, where this process knows. */
export type TraceRun = (run: EndedRun, marks?: TraceMarks) => Promise<void>;

export interface TracePorts {
  readonly accept: AcceptPorts;
  /** Who a run belongs to that names nobody, such as one of a cron that outlived its key. */
  readonly defaultSender: Sender;
  /** Whether the traces of runs without a thread hold what went in and came out. SPEC 6: nothing of them is persisted. */
  readonly tracesStatelessValues: boolean;
  readonly hidden?: HiddenValues;
  readonly logger: Logger;
}

/** Runs of one sender that go into the log together. Nobody waits for them. */
interface Gathered {
  readonly records: TraceRecord[];
  readonly taken: Promise<void>;
}

/**
 * Writes a run that ended as the root of its trace, under the run's own id, so that it is seen and counted like any other, in the
 * project that the request names, or that of its graph. A repeat is the same trace. See {@link takeIntoTraces} for what ingest refuses.
 *
 * @throws what the log throws, when it may take the run later.
 */
export function traceRuns(ports: TracePorts): TraceRun {
  const gathering = new Map<string, Gathered>();

  function begin(key: string, sender: Sender): Gathered {
    const records: TraceRecord[] = [];
    const taken = pause(untilNextTakeMs()).then(async () => {
      gathering.delete(key);
      for (const { runId } of await takeIntoTraces(sender, records, ports.accept)) {
        // It would keep every other end waiting if it were tried for ever.
        ports.logger.error({ runId }, 'a run could not become a trace');
      }
    });
    const begun = { records, taken };
    gathering.set(key, begun);
    return begun;
  }

  return (run, marks) => {
    const sender = { ...ports.defaultSender, ...run.sender };
    const key = senderKey(sender);
    const { records, taken } = gathering.get(key) ?? begin(key, sender);
    records.push(recordOf(run, ports, marks));
    return taken;
  };
}

function recordOf(
  run: EndedRun,
  { tracesStatelessValues, hidden }: Pick<TracePorts, 'tracesStatelessValues' | 'hidden'>,
  marks: TraceMarks | undefined,
): TraceRecord {
  const form = formOf(!run.kwargs.temporary || tracesStatelessValues, hidden);
  return {
    kind: 'post',
    runId: run.runId,
    traceId: run.runId,
    project: projectOf(run),
    parts: ({ values, asked }) => {
      const of = values ? form : { inputs: false, outputs: false };
      return { place: rootPlace(run), ...rootMembers(run, { ...of, asked }, marks) };
    },
  };
}
