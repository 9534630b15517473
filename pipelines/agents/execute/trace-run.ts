import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptPorts } from '../../ingest/accept/accept-drafts.ts';
import { acceptSingle } from '../../ingest/accept/accept-single.ts';
import type { Sender } from '../../ingest/accept/publish-runs.ts';
import type { EndedRun } from '../runs/run-row.ts';
import { formOf, type HiddenValues, projectOf, rootMembers, type TraceForm } from '../traces/root-run.ts';
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

/** Runs that end within it go into the log in one turn, and so into ClickHouse in one insert. Nobody waits for them. */
const gatherMs = 250;

/**
 * Writes a run that ended as the root of its trace, under the run's own id, so that it is seen and counted like any other, in the
 * project that the request names, or that of its graph. A repeat is the same trace. What cannot be taken so, because it is too large
 * or says what no trace may say, goes without its values, and then in the default project without what the request says of it.
 *
 * @throws what the log throws, when it may take the run later.
 */
export function traceRuns(ports: TracePorts): TraceRun {
  let gathering: Promise<void> | undefined;

  return async (run, marks) => {
    gathering ??= pause(gatherMs).then(() => {
      gathering = undefined;
    });
    await gathering;
    const values = !run.kwargs.temporary || ports.tracesStatelessValues;
    const form = formOf(values, ports.hidden);
    const without = { inputs: false, outputs: false };
    const ways = [form, { ...without, asked: true }, { ...without, asked: false }];
    for (const [index, way] of ways.entries()) {
      try {
        const body = Buffer.from(traceBody(run, way, marks));
        await acceptSingle(run.sender ?? ports.defaultSender, { kind: 'post', body }, ports.accept);
        return;
      } catch (err) {
        if (!isRunlakeError(err) || err.class !== 'caller') throw err;
        // It would keep every other end waiting if it were tried for ever.
        if (index === ways.length - 1) ports.logger.error({ err, runId: run.runId }, 'a run could not become a trace');
      }
    }
  };
}

function traceBody(run: EndedRun, form: TraceForm, marks: TraceMarks | undefined): string {
  const { members, values } = rootMembers(run, form, marks);
  const project = form.asked ? `,"session_name":${JSON.stringify(projectOf(run))}` : '';
  return `{"id":${JSON.stringify(run.runId)},${members}${project}${values}}`;
}
