import { formatDottedOrderSegment as segment } from '../ingest/run-event/dotted-order.ts';
import type { TraceMember } from './trace-members.ts';

/** The ids of a run's ancestors, root first, as dotted_order names them. */
export function ancestorIds(dottedOrder: string): string[] {
  return dottedOrder
    .split('.')
    .slice(0, -1)
    .map((segment) => segment.slice(-36));
}

/** Deeper chains of parents are not walked. */
const maxDepth = 1_000;

/** A run that may have come without dotted_order. */
export type Unplaced = TraceMember & { readonly traceTimeMicros: number };

/**
 * The dotted_order of a run: its own, or one put together from the parents in its trace up to the first that has one, or the
 * root. Where a parent is not there (yet), parents go round in a circle or are too many, the run hangs on the root of the trace.
 */
export function dottedOrderOf(run: Unplaced, members: ReadonlyMap<string, TraceMember>): string {
  if (run.dottedOrder !== undefined) return run.dottedOrder;
  if (run.runId === run.traceId) return segment(run.startTimeMicros, run.runId);
  const root = members.get(run.traceId)?.dottedOrder ?? segment(run.traceTimeMicros, run.traceId);
  const segments: string[] = [];
  const seen = new Set<string>();
  let at: TraceMember | undefined = run;
  while (at !== undefined && !seen.has(at.runId) && seen.size < maxDepth) {
    if (at.runId === run.traceId) return [root, ...segments].join('.');
    if (at.dottedOrder !== undefined) return [at.dottedOrder, ...segments].join('.');
    seen.add(at.runId);
    segments.unshift(segment(at.startTimeMicros, at.runId));
    // A span without parent is a root under an id of its own: the trace's id is that of OpenTelemetry.
    if (at.parentRunId === undefined) return segments.join('.');
    at = members.get(at.parentRunId);
  }
  return [root, segment(run.startTimeMicros, run.runId)].join('.');
}
