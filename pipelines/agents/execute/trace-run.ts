import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { AcceptPorts } from '../../ingest/accept/accept-drafts.ts';
import { acceptSingle } from '../../ingest/accept/accept-single.ts';
import type { Sender } from '../../ingest/accept/publish-runs.ts';
import type { EndedRun } from '../runs/end-run.ts';

export type TraceRun = (run: EndedRun) => Promise<void>;

export interface TracePorts {
  readonly accept: AcceptPorts;
  /** Who a run belongs to that names nobody, such as one of a cron that outlived its key. */
  readonly defaultSender: Sender;
  /** Whether the traces of runs without a thread hold what went in and came out. SPEC 6: nothing of them is persisted. */
  readonly tracesStatelessValues: boolean;
  readonly logger: Logger;
}

/** Runs that end within it go into the log in one turn, and so into ClickHouse in one insert. Nobody waits for them. */
const gatherMs = 250;

/**
 * Writes a run that ended as a trace of one run under the run's own id, so that it is seen and counted like any other, in the
 * project that the request names, or that of its graph. A repeat is the same trace. What cannot be taken so, because it is too large
 * or says what no trace may say, goes without its values, and then in the default project without what the request says of it.
 *
 * @throws what the log throws, when it may take the run later.
 */
export function traceRuns(ports: TracePorts): TraceRun {
  let gathering: Promise<void> | undefined;

  return async (run) => {
    gathering ??= pause(gatherMs).then(() => {
      gathering = undefined;
    });
    await gathering;
    const values = !run.kwargs.temporary || ports.tracesStatelessValues;
    const ways = [
      { values, asked: true },
      { values: false, asked: true },
      { values: false, asked: false },
    ];
    for (const [index, way] of ways.entries()) {
      try {
        const body = Buffer.from(traceBody(run, way));
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

interface TraceForm {
  /** Whether it holds what went in and came out. */
  readonly values: boolean;
  /** Whether it is as the request says: in its project, with its tags and metadata. */
  readonly asked: boolean;
}

/** The members of a run as ingest takes them, see `docs/guide/01-send-a-trace.test.ts`. */
function traceBody(run: EndedRun, { values, asked }: TraceForm): string {
  const { kwargs, metadata, error } = run;
  const members: Record<string, string | undefined> = {
    id: JSON.stringify(run.runId),
    name: JSON.stringify(run.graphId),
    run_type: '"chain"',
    start_time: JSON.stringify(run.startedAt),
    end_time: JSON.stringify(run.endedAt),
    session_name: asked ? JSON.stringify(kwargs.langsmith_tracer?.project_name ?? run.graphId) : undefined,
    reference_example_id: asked ? textOf(kwargs.langsmith_tracer?.example_id) : undefined,
    tags: asked ? textOf(kwargs.config.tags) : undefined,
    error: error && JSON.stringify(`${error.error}: ${error.message}`),
    extra: JSON.stringify({
      metadata: {
        ...(asked && metadata),
        run_id: run.runId,
        thread_id: kwargs.temporary ? undefined : run.threadId,
        graph_id: run.graphId,
        assistant_id: run.assistantId,
        run_attempt: run.attempt,
        status: run.status,
      },
    }),
    inputs: values ? asObject('input', textOf(kwargs.input ?? kwargs.command)) : undefined,
    outputs: values ? asObject('output', run.values) : undefined,
  };
  const given = Object.entries(members).filter(([, value]) => value !== undefined);
  return `{${given.map(([name, value]) => `"${name}":${value}`).join(',')}}`;
}

function textOf(value: unknown): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value);
}

/** Inputs and outputs of a run are objects; anything else becomes a member of one. */
function asObject(name: string, text: string | undefined): string | undefined {
  if (text === undefined || text.trimStart().startsWith('{')) return text;
  return `{"${name}":${text}}`;
}
