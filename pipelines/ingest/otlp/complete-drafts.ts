import type { OtlpDraft } from './map-span.ts';
import { overrideKey } from './span-context.ts';

/**
 * Completes the drafts of one request with what its spans state about each other. Time and project of a trace come from
 * its root span if that is in the request, otherwise from its earliest span and from the first span that names a
 * project. A parent span that sets its own run id is resolved to that id.
 *
 * Another split of the spans over requests does no harm: this changes no run id or trace id, and the sink keeps the
 * location that the first event of a trace decides.
 */
export function completeDrafts(
  mapped: ReadonlyArray<{ readonly draft: OtlpDraft; readonly isParentDerived: boolean }>,
  overrides: ReadonlyMap<string, string>,
): OtlpDraft[] {
  const traces = new Map<string, TraceFacts>();
  for (const { draft } of mapped) {
    const facts = traces.get(draft.traceId);
    if (facts === undefined) traces.set(draft.traceId, { lead: draft, project: projectOf(draft) });
    else {
      if (rank(draft) < rank(facts.lead)) facts.lead = draft;
      facts.project ??= projectOf(draft);
    }
  }
  return mapped.map(({ draft, isParentDerived }) => {
    const { lead, project } = traces.get(draft.traceId) as TraceFacts;
    const parent = isParentDerived && overrides.get(overrideKey(draft.traceId, draft.values.parentRunId ?? ''));
    if (parent) draft.values.parentRunId = parent;
    if (lead === draft && project === undefined) return draft;
    const { projectId, projectName } = projectOf(draft) ?? projectOf(lead) ?? project ?? draft;
    const traceTimeMicros = draft.dottedOrder === undefined ? lead.traceTimeMicros : draft.traceTimeMicros;
    return { ...draft, traceTimeMicros, projectId, projectName };
  });
}

interface TraceFacts {
  /** The draft that decides the time of the trace. */
  lead: OtlpDraft;
  project: OtlpDraft | undefined;
}

function projectOf(draft: OtlpDraft): OtlpDraft | undefined {
  return draft.projectId === undefined && draft.projectName === undefined ? undefined : draft;
}

/**
 * Rank, lower first: a span with dotted_order (which contains the trace time), then the root span, then the earliest
 * span.
 */
function rank(draft: OtlpDraft): number {
  if (draft.dottedOrder !== undefined) return -2;
  return draft.values.parentRunId === undefined ? -1 : draft.startTimeMicros;
}
