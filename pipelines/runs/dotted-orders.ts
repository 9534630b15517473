import { formatDottedOrderSegment as segment } from '../ingest/run-event/dotted-order.ts';
import type { TraceMember } from './trace-facts.ts';

/** Returns the ids of the ancestors in a dotted_order, root first. */
export function listAncestorIds(dottedOrder: string): string[] {
  return dottedOrder
    .split('.')
    .slice(0, -1)
    .map((segment) => segment.slice(-36));
}

/** Maximum length of a chain of parents; longer chains are not followed. */
const maxDepth = 1_000;

/** A run that may have been sent without dotted_order. */
export type RunWithoutDottedOrder = TraceMember & { readonly traceTimeMicros: number };

/**
 * Returns the dotted_order of a run: its own, or one that is built from its parents in the trace, up to the first
 * parent that has a dotted_order or up to the root. If a parent is not stored yet, if the parents form a cycle, or if
 * there are too many, the run becomes a child of the root.
 */
export function buildDottedOrder(run: RunWithoutDottedOrder, members: ReadonlyMap<string, TraceMember>): string {
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
    // An OpenTelemetry span without a parent is a root whose id differs from the trace id.
    if (at.parentRunId === undefined) return segments.join('.');
    at = members.get(at.parentRunId);
  }
  return [root, segment(run.startTimeMicros, run.runId)].join('.');
}
