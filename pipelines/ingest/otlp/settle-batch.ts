import type { OtlpDraft } from './map-span.ts';
import { overrideKey } from './span-context.ts';

/**
 * Uses what the spans of one request tell of each other: the time and project of a trace come from its root where that is
 * here, else from its earliest span and the first that names a project; a parent that names its own run id is found by it.
 * None of this decides what a run or a trace is, only what is known of it, so another split of the spans does no harm:
 * the sink keeps what the first event of a trace said.
 */
export function settleBatch(
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
  /** The draft that tells the time of the trace. */
  lead: OtlpDraft;
  project: OtlpDraft | undefined;
}

function projectOf(draft: OtlpDraft): OtlpDraft | undefined {
  return draft.projectId === undefined && draft.projectName === undefined ? undefined : draft;
}

/** A dotted_order knows the trace's time, a root is it, and of the others the earliest comes nearest. */
function rank(draft: OtlpDraft): number {
  if (draft.dottedOrder !== undefined) return -2;
  return draft.values.parentRunId === undefined ? -1 : draft.startTimeMicros;
}
