import type { GraphTracing } from '../../../infra/config/graph-tracing.ts';
import { formatDottedOrderSegment } from '../../ingest/run-event/dotted-order.ts';
import { parseTime } from '../../ingest/run-event/times.ts';
import type { ClaimedRun, EndedRun } from '../runs/run-row.ts';
import type { TraceMarks } from './trace-order.ts';

/** The fields of a graph run that its trace contains. Without `endedAt` the run is active. */
export type RootRun = Pick<
  ClaimedRun,
  'runId' | 'threadId' | 'graphId' | 'assistantId' | 'attempt' | 'kwargs' | 'metadata' | 'startedAt'
> &
  Partial<Pick<EndedRun, 'endedAt' | 'status' | 'error' | 'values'>>;

export interface TraceOptions {
  /** Whether to include the inputs. */
  readonly inputs: boolean;
  readonly outputs: boolean;
  /** Whether to apply the request's example, tags and metadata. */
  readonly withRequestFields: boolean;
}

/** Whether environment variables of the project hide the inputs and outputs of runs. */
export type HiddenValues = Pick<GraphTracing, 'hidesInputs' | 'hidesOutputs'>;

export function chooseTraceOptions(values: boolean, hidden: HiddenValues | undefined): TraceOptions {
  return { inputs: values && !hidden?.hidesInputs, outputs: values && !hidden?.hidesOutputs, withRequestFields: true };
}

/**
 * Returns the tracing project of a run: the project that the request names or, if it names none, the id of the graph.
 */
export function findProject({ kwargs, graphId }: Pick<RootRun, 'kwargs' | 'graphId'>): string {
  return kwargs.langsmith_tracer?.project_name ?? graphId;
}

/**
 * Returns the ids and the `dotted_order` of the root run as JSON members without braces. They are the same for every
 * attempt.
 */
export function encodeRootLocation({ runId, startedAt }: Pick<RootRun, 'runId' | 'startedAt'>): string {
  const order = formatDottedOrderSegment(parseTime(startedAt) as number, runId);
  return `"id":"${runId}","trace_id":"${runId}","dotted_order":"${order}"`;
}

/**
 * Returns all members of the root run except ids and project, in the format of ingest: JSON members without braces.
 * `values` is empty or starts with a comma. See `docs/guide/01-send-a-trace.md`.
 */
export function encodeRootMembers(
  run: RootRun,
  { inputs, outputs, withRequestFields }: TraceOptions,
  marks?: TraceMarks,
): { readonly members: string; readonly values: string } {
  const { kwargs, metadata, error } = run;
  const members = encodeMembers({
    name: JSON.stringify(run.graphId),
    run_type: '"chain"',
    start_time: JSON.stringify(run.startedAt),
    end_time: encode(run.endedAt),
    reference_example_id: withRequestFields ? encode(kwargs.langsmith_tracer?.example_id) : undefined,
    tags: withRequestFields ? encode(kwargs.config.tags) : undefined,
    error: error && JSON.stringify(`${error.error}: ${error.message}`),
    extra: JSON.stringify({
      metadata: {
        ...(withRequestFields && metadata),
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
  const valueMembers = encodeMembers({
    inputs: inputs ? toObjectText('input', encode(kwargs.input ?? kwargs.command)) : undefined,
    outputs: outputs ? toObjectText('output', run.values) : undefined,
  });
  return { members, values: valueMembers === '' ? '' : `,${valueMembers}` };
}

function encodeMembers(members: Readonly<Record<string, string | undefined>>): string {
  const present = Object.entries(members).filter(([, value]) => value !== undefined);
  return present.map(([name, value]) => `"${name}":${value}`).join(',');
}

function encode(value: unknown): string | undefined {
  return value === undefined ? undefined : JSON.stringify(value);
}

/**
 * Converts JSON text to the text of an object, as ingest requires: a value that is not an object is wrapped in an
 * object, as the member `name`.
 */
function toObjectText(name: string, text: string | undefined): string | undefined {
  if (text === undefined || text.trimStart().startsWith('{')) return text;
  return `{"${name}":${text}}`;
}
