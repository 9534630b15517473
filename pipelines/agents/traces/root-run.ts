import type { GraphTracing } from '../../../infra/config/graph-tracing.ts';
import { formatDottedOrderSegment } from '../../ingest/run-event/dotted-order.ts';
import { parseTime } from '../../ingest/run-event/times.ts';
import type { ClaimedRun, EndedRun } from '../runs/run-row.ts';
import type { TraceMarks } from './trace-order.ts';

/** A run of a graph, as far as its trace tells of it. Without an end it goes on. */
export type RootRun = Pick<
  ClaimedRun,
  'runId' | 'threadId' | 'graphId' | 'assistantId' | 'attempt' | 'kwargs' | 'metadata' | 'startedAt'
> &
  Partial<Pick<EndedRun, 'endedAt' | 'status' | 'error' | 'values'>>;

export interface TraceForm {
  /** Whether it holds what went in. */
  readonly inputs: boolean;
  readonly outputs: boolean;
  /** Whether it is as the request says: in its project, with its tags and metadata. */
  readonly asked: boolean;
}

/** What the project's own variables say is not to be shown. */
export type HiddenValues = Pick<GraphTracing, 'hidesInputs' | 'hidesOutputs'>;

export function formOf(values: boolean, hidden: HiddenValues | undefined): TraceForm {
  return { inputs: values && !hidden?.hidesInputs, outputs: values && !hidden?.hidesOutputs, asked: true };
}

/** The project of the run's trace: the one that the request names, or that of its graph. */
export function projectOf({ kwargs, graphId }: Pick<RootRun, 'kwargs' | 'graphId'>): string {
  return kwargs.langsmith_tracer?.project_name ?? graphId;
}

/** Where the trace of a run begins: JSON without the braces, the same for each attempt. */
export function rootPlace({ runId, startedAt }: Pick<RootRun, 'runId' | 'startedAt'>): string {
  const order = formatDottedOrderSegment(parseTime(startedAt) as number, runId);
  return `"id":"${runId}","trace_id":"${runId}","dotted_order":"${order}"`;
}

/**
 * The members of the root of a run's trace, as ingest takes them, beside its place and project: JSON without the braces. Those of
 * `values` have a comma before. See `docs/guide/01-send-a-trace.test.ts`.
 */
export function rootMembers(
  run: RootRun,
  { inputs, outputs, asked }: TraceForm,
  marks?: TraceMarks,
): { readonly members: string; readonly values: string } {
  const { kwargs, metadata, error } = run;
  const members = textOfMembers({
    name: JSON.stringify(run.graphId),
    run_type: '"chain"',
    start_time: JSON.stringify(run.startedAt),
    end_time: textOf(run.endedAt),
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
        langgraph_auth_user_id: kwargs.config.configurable?.langgraph_auth_user_id,
        run_attempt: run.attempt,
        status: run.status,
        child_runs_left_out: marks?.droppedRuns || undefined,
        child_values_left_out: marks?.droppedValues || undefined,
      },
    }),
  });
  const held = textOfMembers({
    inputs: inputs ? asObject('input', textOf(kwargs.input ?? kwargs.command)) : undefined,
    outputs: outputs ? asObject('output', run.values) : undefined,
  });
  return { members, values: held === '' ? '' : `,${held}` };
}

function textOfMembers(members: Readonly<Record<string, string | undefined>>): string {
  const given = Object.entries(members).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `"${name}":${value}`).join(',');
}

function textOf(value: unknown): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value);
}

/** Inputs and outputs of a run are objects; anything else becomes a member of one. */
function asObject(name: string, text: string | undefined): string | undefined {
  if (text === undefined || text.trimStart().startsWith('{')) return text;
  return `{"${name}":${text}}`;
}
