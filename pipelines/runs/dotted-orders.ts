import { formatDottedOrderSegment as segment } from '../ingest/run-event/dotted-order.ts';
import type { TraceMember } from './trace-facts.ts';

/** Returns the ids of the ancestors in a dotted_order, root first. */
export function listAncestorIds(dottedOrder: string): string[] {
  return listIds(dottedOrder).slice(0, -1);
}

const listIds = (dottedOrder: string) => dottedOrder.split('.').map((each) => each.slice(-36));

/** Maximum length of a chain of parents; longer chains are not followed. */
const maxDepth = 1_000;

/** A run that may have been sent without dotted_order. */
export type RunWithoutDottedOrder = TraceMember & { readonly traceTimeMicros: number };

/** A run whose parents lead to the root, to a run with dotted_order or to a run without a parent. */
interface Place {
  readonly run: TraceMember;
  /** Absent for a run at which the parents end. */
  readonly parent: Place | undefined;
  /** Number of runs from this one up to the end. */
  readonly depth: number;
  segment?: string;
  wantedIds?: readonly string[];
}

/**
 * The runs of one trace, by their parents.
 *
 * The ancestors of a run are those in its own dotted_order or, without it, its parents, up to the first parent that has
 * a dotted_order or up to the root. If a parent is not stored yet, if the parents form a cycle, or if there are too
 * many, the run is a child of the root. Each parent is followed once, however many runs are below it.
 */
export class TraceTree {
  readonly #members: ReadonlyMap<string, TraceMember>;
  readonly #wanted: ReadonlySet<string>;
  /** By run; undefined for runs that are children of the root because their parents do not lead anywhere. */
  readonly #places = new Map<string, Place | undefined>();

  /** @param wanted ids that {@link listWantedAncestorIds} lists. */
  constructor(members: readonly TraceMember[], wanted: ReadonlySet<string> = new Set()) {
    this.#members = new Map(members.map((member) => [member.runId, member]));
    this.#wanted = wanted;
  }

  /** Returns the dotted_order of a run: its own, or one that is built from its ancestors. */
  buildDottedOrder(run: RunWithoutDottedOrder): string {
    return this.findAncestors(run)();
  }

  /** Returns a function that builds the dotted_order. It keeps only the ancestors of the run in memory, not the tree. */
  findAncestors(run: RunWithoutDottedOrder): () => string {
    const { traceId, dottedOrder } = run;
    if (dottedOrder !== undefined) return () => dottedOrder;
    const own = segment(run.startTimeMicros, run.runId);
    if (isEnd(run)) return () => own;
    const rootOrder = this.#members.get(traceId)?.dottedOrder ?? segment(run.traceTimeMicros, traceId);
    const parent = this.#findParent(run);
    return () => joinSegments(own, parent, { traceId, rootOrder });
  }

  /** Returns the ids of the ancestors of a run, root first. */
  listAncestorIds(run: TraceMember): string[] {
    if (run.dottedOrder !== undefined) return listAncestorIds(run.dottedOrder);
    if (isEnd(run)) return [];
    const ids: string[] = [];
    let place = this.#findParent(run);
    for (; place?.parent !== undefined; place = place.parent) ids.push(place.run.runId);
    return [...this.#listEndIds(place?.run, run.traceId), ...ids.reverse()];
  }

  /** As {@link listAncestorIds}, but only those that are wanted. */
  listWantedAncestorIds(run: TraceMember): readonly string[] {
    if (run.dottedOrder !== undefined) return this.#selectWanted(listAncestorIds(run.dottedOrder));
    if (isEnd(run)) return [];
    const parent = this.#findParent(run);
    return parent
      ? this.#listWantedIds(parent, run.traceId)
      : this.#selectWanted(this.#listEndIds(undefined, run.traceId));
  }

  /** Returns the wanted ids of a place and of those above it. */
  #listWantedIds(place: Place, traceId: string): readonly string[] {
    if (place.wantedIds === undefined) {
      const { run, parent } = place;
      const above = parent ? this.#listWantedIds(parent, traceId) : this.#selectWanted(this.#listEndIds(run, traceId));
      place.wantedIds = parent && this.#wanted.has(run.runId) ? [...above, run.runId] : above;
    }
    return place.wantedIds;
  }

  #selectWanted(ids: readonly string[]): string[] {
    return ids.filter((id) => this.#wanted.has(id));
  }

  /** Returns the ids down to the run at which parents end, root first; without such a run, down to the root. */
  #listEndIds(end: TraceMember | undefined, traceId: string): string[] {
    const run = end ?? this.#members.get(traceId);
    return run?.dottedOrder === undefined ? [run?.runId ?? traceId] : listIds(run.dottedOrder);
  }

  #findParent({ parentRunId }: TraceMember): Place | undefined {
    const parent = parentRunId === undefined ? undefined : this.#members.get(parentRunId);
    const place = parent && this.#findPlace(parent);
    return place && place.depth < maxDepth ? place : undefined;
  }

  #findPlace(run: TraceMember): Place | undefined {
    const path: TraceMember[] = [];
    let at: TraceMember | undefined = run;
    for (; at !== undefined && !this.#places.has(at.runId); at = this.#members.get(at.parentRunId ?? '')) {
      path.push(at);
      // Found again, if the parents form a cycle.
      this.#places.set(at.runId, undefined);
      if (isEnd(at)) break;
    }
    let place = at && this.#places.get(at.runId);
    for (const each of path.reverse()) {
      if (isEnd(each)) place = { run: each, parent: undefined, depth: 1 };
      else place = place && place.depth < maxDepth ? { run: each, parent: place, depth: place.depth + 1 } : undefined;
      this.#places.set(each.runId, place);
    }
    return this.#places.get(run.runId);
  }
}

/** An OpenTelemetry span without a parent is a root whose id differs from the trace id. */
function isEnd({ runId, traceId, parentRunId, dottedOrder }: TraceMember): boolean {
  return runId === traceId || dottedOrder !== undefined || parentRunId === undefined;
}

/** Joins the segments of a run, of the places from its parent up, and of the root. */
function joinSegments(
  own: string,
  parent: Place | undefined,
  { traceId, rootOrder }: { readonly traceId: string; readonly rootOrder: string },
): string {
  const segments = [own];
  let place = parent;
  for (; place?.parent !== undefined; place = place.parent) segments.push(formatSegment(place));
  if (place === undefined || place.run.runId === traceId) segments.push(rootOrder);
  else segments.push(place.run.dottedOrder ?? formatSegment(place));
  return segments.reverse().join('.');
}

function formatSegment(place: Place): string {
  place.segment ??= segment(place.run.startTimeMicros, place.run.runId);
  return place.segment;
}
