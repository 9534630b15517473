import { setTimeout as pause } from 'node:timers/promises';
import type { Sender } from '../../ingest/accept/draft.ts';
import type { EndedRun } from '../runs/run-row.ts';
import type { ChildRunDeps } from '../traces/child-runs.ts';
import { chooseTraceOptions, encodeRootLocation, encodeRootMembers, findProject } from '../traces/root-run.ts';
import { buildSenderKey, getMsToNextFlush, type TraceRecord, writeTraceRecords } from '../traces/take-into-traces.ts';
import type { TraceMarks } from '../traces/trace-order.ts';

/**
 * Writes an ended run as a trace. `marks` counts what the limits dropped from the trace; it is set only if this process
 * executed the run.
 */
export type TraceRun = (run: EndedRun, marks?: TraceMarks) => Promise<void>;

type TraceDeps = Omit<ChildRunDeps, 'maxRuns' | 'maxCharacters'>;

/** Traces of one sender that are written to the log together. */
interface Batch {
  readonly records: TraceRecord[];
  readonly accepted: Promise<void>;
}

/**
 * Returns a function that writes an ended run as the root run of its trace, with the same id, so that queries and usage
 * include it. The trace is stored in the project of the request or, if the request names none, in that of the graph.
 * The function is idempotent. See {@link writeTraceRecords} for runs that ingest rejects.
 *
 * @throws retryable errors of the log.
 */
export function createTraceRun(deps: TraceDeps): TraceRun {
  const batches = new Map<string, Batch>();

  function openBatch(key: string, sender: Sender): Batch {
    const records: TraceRecord[] = [];
    const accepted = pause(getMsToNextFlush()).then(async () => {
      batches.delete(key);
      for (const { runId } of await writeTraceRecords(sender, records, deps.accept)) {
        // Do not retry, because a run that ingest always rejects would block the publication of all other ends.
        deps.logger.error({ runId }, 'trace of a run rejected; not retried');
      }
    });
    const batch = { records, accepted };
    batches.set(key, batch);
    return batch;
  }

  return (run, marks) => {
    const sender = { ...deps.defaultSender, ...run.sender };
    const key = buildSenderKey(sender);
    const { records, accepted } = batches.get(key) ?? openBatch(key, sender);
    records.push(toTraceRecord(run, deps, marks));
    return accepted;
  };
}

function toTraceRecord(
  run: EndedRun,
  { hidden }: Pick<TraceDeps, 'hidden'>,
  marks: TraceMarks | undefined,
): TraceRecord {
  const form = chooseTraceOptions(!run.kwargs.temporary, hidden);
  return {
    kind: 'post',
    runId: run.runId,
    traceId: run.runId,
    project: findProject(run),
    parts: ({ values, withRequestFields }) => {
      const includedValues = values ? form : { inputs: false, outputs: false };
      return {
        location: encodeRootLocation(run),
        ...encodeRootMembers(run, { ...includedValues, withRequestFields }, marks),
      };
    },
  };
}
