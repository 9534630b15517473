import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import { formatDottedOrderSegment } from '../run-event/dotted-order.ts';
import { readUuidTimeMicros } from '../run-event/uuid.ts';
import { type AcceptDeps, acceptDrafts } from './accept-drafts.ts';
import { type Acceptance, Rejections, type RunDraft, type Sender, toSingleRunError } from './draft.ts';
import { type ParsedRun, readJsonRun, toLocatedDraft } from './read-run.ts';
import { findAcceptedRuns, type RunLocation } from './run-locations.ts';

/** Dependencies of {@link acceptSingle}, which may have to find a run. */
export type AcceptSingleDeps = AcceptDeps & { readonly log: Pick<EventLog, 'position' | 'isStored'> };

/**
 * Handles `POST /runs` and `PATCH /runs/{id}`. The body is one run, which can omit trace_id and dotted_order. For a
 * post without dotted_order, a dotted_order is created. A patch that contains only an id gets the location of its run,
 * and a post that contains only the id of its parent gets the trace of the parent; the request waits up to
 * `patchWaitMs` until that run is known, and longer while the sinks are behind (`findAcceptedRuns`).
 *
 * @throws INVALID_RUN, RUN_UNKNOWN, NOT_STORED_YET and the errors of `acceptDrafts`.
 */
export async function acceptSingle(
  sender: Sender,
  sent: { kind: 'post' | 'patch'; pathId?: string; body: Buffer },
  deps: AcceptSingleDeps,
): Promise<Acceptance> {
  const run = readJsonRun(sent, deps.config);
  const draft = await toSingleDraft(sender, run, deps);
  const request = { sender, drafts: [draft], rejected: new Rejections(), createError: toSingleRunError };
  const acceptance = await acceptDrafts(request, deps);
  if (run.kind === 'post') deps.runLocations.remember(sender.workspaceId, run.runId, draft);
  return acceptance;
}

async function toSingleDraft(sender: Sender, run: ParsedRun, deps: AcceptSingleDeps): Promise<RunDraft> {
  const draft = toLocatedDraft(run);
  if (draft !== undefined) return draft;
  const { workspaceId } = sender;
  const location =
    run.kind === 'patch'
      ? (await findAcceptedRuns(workspaceId, [run.runId], deps))?.[0]
      : await deps.runLocations.find(workspaceId, run.runId, 0);
  if (location !== undefined) return toDraftAtLocation(run, location);
  if (run.kind === 'patch') throw runlakeError('RUN_UNKNOWN', { run: run.runId });
  return buildNewDraft(sender, run, deps);
}

/**
 * Builds the draft of a run whose location is known. The run keeps its key even if the request states another start
 * time.
 */
function toDraftAtLocation({ dottedOrder: _none, ...run }: ParsedRun, location: RunLocation): RunDraft {
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
 * Builds the draft for the first post of a run that has no dotted_order. A root run starts its own trace; a child run
 * belongs to the trace that the request names or, if it names none, to the trace of its parent, for which the request
 * waits. It is not accepted without a trace, because its project, its partition and its usage follow from the trace.
 * The key time is the start time of the run. If the run has no start time, the key time is taken from an id of UUID
 * version 7, so that a repeated request gets the same key. If a concurrent request for the same run determines another
 * key time, the sink gives both events the same key time.
 */
async function buildNewDraft(
  sender: Sender,
  { dottedOrder: _none, ...run }: ParsedRun,
  deps: AcceptSingleDeps,
): Promise<RunDraft> {
  const { parentRunId, startedAtMicros } = run.values;
  const startTimeMicros = startedAtMicros ?? readUuidTimeMicros(run.runId) ?? Date.now() * 1_000;
  if (parentRunId === undefined) {
    if (run.traceId !== undefined && run.traceId !== run.runId) {
      const reason = `trace_id is ${run.traceId}, but a run without parent_run_id begins its own trace`;
      throw runlakeError('INVALID_RUN', { run: run.runId, reason });
    }
    const dottedOrder = formatDottedOrderSegment(startTimeMicros, run.runId);
    return { ...run, traceId: run.runId, startTimeMicros, traceTimeMicros: startTimeMicros, dottedOrder };
  }
  const parent =
    run.traceId === undefined
      ? (await findAcceptedRuns(sender.workspaceId, [parentRunId], deps))?.[0]
      : await deps.runLocations.find(sender.workspaceId, parentRunId, 0);
  const traceId = run.traceId ?? parent?.traceId;
  if (traceId === undefined) {
    const reason = `its parent ${parentRunId} is not stored: post the parent first, or send trace_id`;
    throw runlakeError('INVALID_RUN', { run: run.runId, reason });
  }
  return { ...run, traceId, startTimeMicros, traceTimeMicros: parent?.traceTimeMicros ?? startTimeMicros };
}
