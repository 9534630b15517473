import type { OtlpDraft } from './map-span.ts';
import { buildOverrideKey } from './span-context.ts';

/**
 * Completes the drafts of one request with data of other spans in the request. The time and the project of a trace come
 * from its root span if the request contains it; otherwise the time comes from the earliest span, and the project from
 * the first span that names one. A parent span that sets its own run id is resolved to that id.
 *
 * The drafts may depend on how spans are split over requests. This is harmless, because run ids and trace ids do not
 * change, and the sink keeps the location that the first event of a trace determines.
 */
export function completeDrafts(
  mapped: ReadonlyArray<{ readonly draft: OtlpDraft; readonly isParentDerived: boolean }>,
  overrides: ReadonlyMap<string, string>,
): OtlpDraft[] {
  const traces = new Map<string, TraceOrigin>();
  for (const { draft } of mapped) {
    const origin = traces.get(draft.traceId);
    if (origin === undefined) traces.set(draft.traceId, { lead: draft, project: findProjectDraft(draft) });
    else {
      if (rankDraft(draft) < rankDraft(origin.lead)) origin.lead = draft;
      origin.project ??= findProjectDraft(draft);
    }
  }
  return mapped.map(({ draft, isParentDerived }) => {
    const { lead, project } = traces.get(draft.traceId) as TraceOrigin;
    const parent = isParentDerived && overrides.get(buildOverrideKey(draft.traceId, draft.values.parentRunId ?? ''));
    if (parent) draft.values.parentRunId = parent;
    if (lead === draft && project === undefined) return draft;
    const { projectId, projectName } = findProjectDraft(draft) ?? findProjectDraft(lead) ?? project ?? draft;
    const traceTimeMicros = draft.dottedOrder === undefined ? lead.traceTimeMicros : draft.traceTimeMicros;
    return { ...draft, traceTimeMicros, projectId, projectName };
  });
}

interface TraceOrigin {
  /** The draft that decides the time of the trace. */
  lead: OtlpDraft;
  project: OtlpDraft | undefined;
}

function findProjectDraft(draft: OtlpDraft): OtlpDraft | undefined {
  return draft.projectId === undefined && draft.projectName === undefined ? undefined : draft;
}

/**
 * Rank, lower first: a span with dotted_order (which contains the trace time), then the root span, then the earliest
 * span.
 */
function rankDraft(draft: OtlpDraft): number {
  if (draft.dottedOrder !== undefined) return -2;
  return draft.values.parentRunId === undefined ? -1 : draft.startTimeMicros;
}
