import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { formatDottedOrderSegment } from '../run-event/dotted-order.ts';
import { timeOfUuid } from '../run-event/uuid.ts';
import { type AcceptDeps, acceptDrafts } from './accept-drafts.ts';
import type { Acceptance, RunDraft } from './draft.ts';
import type { Sender } from './publish-runs.ts';
import { readJsonRun } from './read-json-run.ts';
import type { ReadRun } from './read-run.ts';
import { singleRunRefused } from './rejection.ts';
import type { RunLocation } from './run-locations.ts';

/**
 * `POST /runs` and `PATCH /runs/{id}`: one run, which may omit trace_id and dotted_order. A post without dotted_order
 * gets one. A patch with only an id takes the location of its run and waits up to `patchWaitMs` for the run to appear.
 *
 * @throws INVALID_RUN, RUN_UNKNOWN and what `acceptDrafts` throws.
 */
export async function acceptSingle(
  sender: Sender,
  request: { kind: 'post' | 'patch'; idOutside?: string; body: Buffer },
  deps: AcceptDeps,
): Promise<Acceptance> {
  const run = readJsonRun(request, deps.config);
  const draft = await draftOfSingle(sender, run, deps);
  const acceptance = await acceptDrafts(sender, [draft], [], deps, [], singleRunRefused);
  if (run.kind === 'post') deps.runLocations.remember(sender.workspaceId, run.runId, draft);
  return acceptance;
}

async function draftOfSingle(sender: Sender, run: ReadRun, deps: AcceptDeps): Promise<RunDraft> {
  const { dottedOrder, traceId, ...rest } = run;
  if (dottedOrder !== undefined && traceId !== undefined) {
    const { text, startTimeMicros, traceTimeMicros } = dottedOrder;
    return { ...rest, traceId, startTimeMicros, traceTimeMicros, dottedOrder: text };
  }
  const waitMs = run.kind === 'patch' ? deps.config.patchWaitMs : 0;
  const location = await deps.runLocations.find(sender.workspaceId, run.runId, waitMs);
  if (location !== undefined) return draftAtLocation(run, location);
  if (run.kind === 'patch') throw runlakeError('RUN_UNKNOWN', { run: run.runId });
  return newDraft(sender, run, deps);
}

/** A known run keeps its key, whatever the request states about its start. */
function draftAtLocation({ dottedOrder: _none, ...run }: ReadRun, location: RunLocation): RunDraft {
  if (run.traceId !== undefined && run.traceId !== location.traceId) {
    throw runlakeError('INVALID_RUN', {
      run: run.runId,
      reason: `trace_id ${run.traceId} is not that of the run, ${location.traceId}`,
    });
  }
  const { traceId, startTimeMicros, traceTimeMicros } = location;
  return { ...run, traceId, startTimeMicros, traceTimeMicros };
}

/**
 * A first post without dotted_order. A root starts its own trace; a child takes the trace that it names, or its parent's.
 * The key time is the start time. Without one it is the time in a version 7 id, so that a repeat has the same key.
 */
async function newDraft(sender: Sender, { dottedOrder: _none, ...run }: ReadRun, deps: AcceptDeps): Promise<RunDraft> {
  const { parentRunId, startedAtMicros } = run.values;
  const startTimeMicros = startedAtMicros ?? timeOfUuid(run.runId) ?? Date.now() * 1_000;
  if (parentRunId === undefined) {
    if (run.traceId !== undefined && run.traceId !== run.runId) {
      const reason = `trace_id is ${run.traceId}, but a run without parent_run_id begins its own trace`;
      throw runlakeError('INVALID_RUN', { run: run.runId, reason });
    }
    const dottedOrder = formatDottedOrderSegment(startTimeMicros, run.runId);
    return { ...run, traceId: run.runId, startTimeMicros, traceTimeMicros: startTimeMicros, dottedOrder };
  }
  const parent = await deps.runLocations.find(sender.workspaceId, parentRunId, 0);
  const traceId = run.traceId ?? parent?.traceId;
  if (traceId === undefined) {
    const reason = `its parent ${parentRunId} is not known yet: send trace_id, or dotted_order`;
    throw runlakeError('INVALID_RUN', { run: run.runId, reason });
  }
  return { ...run, traceId, startTimeMicros, traceTimeMicros: parent?.traceTimeMicros ?? startTimeMicros };
}
