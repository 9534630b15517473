import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptDeps } from '../../ingest/accept/accept-drafts.ts';
import type { Sender } from '../../ingest/accept/publish-runs.ts';
import type { EndedRun } from '../runs/run-row.ts';
import { chooseForm, findProject, type HiddenValues, rootLocation, rootMembers } from '../traces/root-run.ts';
import { senderKey, type TraceRecord, takeIntoTraces, untilNextFlushMs } from '../traces/take-into-traces.ts';
import type { TraceMarks } from '../traces/trace-order.ts';

/** Writes an ended run as a trace. `marks`: what limits omitted from the trace, if this process executed the run. */
export type TraceRun = (run: EndedRun, marks?: TraceMarks) => Promise<void>;

export interface TraceDeps {
  readonly accept: AcceptDeps;
  /** Owner of the trace of a run without a sender, such as a run of a cron that outlived its key. */
  readonly defaultSender: Sender;
  readonly hidden?: HiddenValues;
  readonly logger: Logger;
}

/** Traces of one sender that are written to the log together. */
interface Batch {
  readonly records: TraceRecord[];
  readonly accepted: Promise<void>;
}

/**
 * Writes an ended run as the root run of its trace, with the same id, so that queries and usage include it. The project
 * is that of the request, else that of the graph. Idempotent. See {@link takeIntoTraces} for runs that ingest rejects.
 *
 * @throws retryable errors of the log.
 */
export function traceRuns(deps: TraceDeps): TraceRun {
  const batches = new Map<string, Batch>();

  function openBatch(key: string, sender: Sender): Batch {
    const records: TraceRecord[] = [];
    const accepted = pause(untilNextFlushMs()).then(async () => {
      batches.delete(key);
      for (const { runId } of await takeIntoTraces(sender, records, deps.accept)) {
        // Do not retry: a run that ingest always rejects would block the publication of all other ends.
        deps.logger.error({ runId }, 'trace of a run rejected; not retried');
      }
    });
    const batch = { records, accepted };
    batches.set(key, batch);
    return batch;
  }

  return (run, marks) => {
    const sender = { ...deps.defaultSender, ...run.sender };
    const key = senderKey(sender);
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
  const form = chooseForm(!run.kwargs.temporary, hidden);
  return {
    kind: 'post',
    runId: run.runId,
    traceId: run.runId,
    project: findProject(run),
    parts: ({ values, asked }) => {
      const included = values ? form : { inputs: false, outputs: false };
      return { location: rootLocation(run), ...rootMembers(run, { ...included, asked }, marks) };
    },
  };
}
