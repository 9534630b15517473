import { formatTime } from '../../pipelines/ingest/run-event/times.ts';
import type { RunState, TraceState } from './model.ts';
import type { ProjectState } from './projects.ts';

/** Stands for a value that the model does not determine. */
export const anything = '*';

const toJsonText = (text: string | undefined) => (text === undefined ? 'null' : JSON.stringify(text));

/** Returns the expected response for a run: JSON text by field. */
export function expectedRun(
  trace: TraceState,
  runId: string,
  projects: readonly ProjectState[],
): Record<string, string> {
  const run = trace.runs.get(runId) as RunState;
  const values: Record<string, string> = { ...run.post, ...run.patch };
  const order = dottedOrderOf(trace, runId);
  const ancestors = parseAncestorIds(order);
  const value = (name: string, absent = 'null') => values[name] ?? absent;
  const tokens = (name: string) => sumTokens(trace, runId, name);
  return {
    id: toJsonText(runId),
    trace_id: toJsonText(trace.traceId),
    session_id: toJsonText(projects[trace.project as number]?.id),
    dotted_order: toJsonText(order),
    parent_run_id: toJsonText(run.parentId ?? ancestors.at(-1)),
    parent_run_ids: JSON.stringify(ancestors),
    name: value('name', '""'),
    run_type: value('run_type', '"chain"'),
    start_time: value('start_time', toJsonText(formatTime(run.keyMicros))),
    end_time: value('end_time'),
    status: toJsonText(values.error ? 'error' : values.end_time ? 'success' : 'pending'),
    error: value('error'),
    inputs: value('inputs', '{}'),
    outputs: value('outputs'),
    extra: value('extra'),
    events: value('events'),
    serialized: value('serialized'),
    tags: value('tags'),
    reference_example_id: value('reference_example_id'),
    prompt_tokens: tokens('prompt_tokens'),
    completion_tokens: tokens('completion_tokens'),
    total_tokens: tokens('total_tokens'),
  };
}

/**
 * Returns the sum over the innermost model calls below the run that report this number; if none does, the run's own
 * number.
 */
function sumTokens(trace: TraceState, runId: string, name: string): string {
  const stated = new Map<string, number>();
  for (const [id, run] of trace.runs) {
    const { run_type: runType, [name]: number }: Record<string, string | undefined> = { ...run.post, ...run.patch };
    if ((runType === '"llm"' || runType === '"embedding"') && number !== undefined) stated.set(id, Number(number));
  }
  const below = [...stated.keys()]
    .map((id) => ({ id, ancestors: parseAncestorIds(dottedOrderOf(trace, id)) }))
    .filter(({ ancestors }) => ancestors.includes(runId));
  const innermost = below.filter(({ id }) => !below.some(({ ancestors }) => ancestors.includes(id)));
  if (innermost.length === 0) return String(stated.get(runId) ?? 0);
  return String(innermost.reduce((sum, { id }) => sum + (stated.get(id) as number), 0));
}

/** Returns the ids of the ancestors, the root first. */
function parseAncestorIds(dottedOrder: string): string[] {
  return dottedOrder
    .split('.')
    .slice(0, -1)
    .map((segment) => segment.slice(-36));
}

export function buildSegment(micros: number, id: string): string {
  return `${formatTime(micros).replace(/[-:.]/g, '')}Z${id}`;
}

/**
 * Returns the run's own dotted_order, or one that is built from the known ancestors; a run whose parent is missing is a
 * child of the root.
 */
function dottedOrderOf(trace: TraceState, runId: string): string {
  const run = trace.runs.get(runId) as RunState;
  if (run.dottedOrder !== undefined) return run.dottedOrder;
  const own = buildSegment(run.keyMicros, runId);
  if (runId === trace.traceId) return own;
  const root = trace.runs.has(trace.traceId)
    ? dottedOrderOf(trace, trace.traceId)
    : buildSegment(trace.micros, trace.traceId);
  let above = root;
  const missing: string[] = [];
  for (let parent = run.parentId; ; ) {
    const state = parent === undefined ? undefined : trace.runs.get(parent);
    // The chain ends before the root or a run with a dotted_order, so only the run itself is attached to the root.
    if (parent === undefined || state === undefined) return `${root}.${own}`;
    if (parent === trace.traceId || state.dottedOrder !== undefined) {
      above = dottedOrderOf(trace, parent);
      return [above, ...missing, own].join('.');
    }
    missing.unshift(buildSegment(state.keyMicros, parent));
    parent = state.parentId;
  }
}
