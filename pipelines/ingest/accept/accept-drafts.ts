import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { AvroWriter, buildWirePrefix } from '../../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { runInTimeSlices, type StepwiseWork } from '../../../infra/timeouts/time-slices.ts';
import { attachmentEvents, runEvents, type Topic } from '../../../schemas/topics.ts';
import { buildTraceHeaders } from '../../attachments/read-attachment.ts';
import type { PriceMaps } from '../../costs/load-price-maps.ts';
import type { PriceMap } from '../../costs/price-map.ts';
import type { PrepareDeps } from '../../feedback/prepare-feedback.ts';
import type { ProjectResolver } from '../../projects/resolve-project.ts';
import { encodeRunEvent, nilUuid, readProjectId, writeProjectId } from '../run-event/run-event.ts';
import {
  type Acceptance,
  clampTimes,
  createAllRejectedError,
  createRunTooLargeError,
  dropUnusableFirstToken,
  findTimesError,
  type Rejection,
  type Rejections,
  type RunDraft,
  type Sender,
  type TimeLimits,
} from './draft.ts';
import { mayHavePrice, priceRun } from './price-of-run.ts';
import type { RunLocations } from './run-locations.ts';

interface EncodedRun extends LogMessage {
  readonly runId: string;
  readonly draft: RunDraft;
}

/**
 * Encodes runs as log messages that do not contain their projects yet, and rejects runs that are larger than
 * `maxRunBytes`. The message key consists of workspace and trace, so that one sink reads all events of a trace, in
 * order.
 */
function* encodeRuns(
  { sender, drafts, rejected }: Pick<DraftedRequest, 'sender' | 'drafts' | 'rejected'>,
  { log, config: { maxRunBytes } }: Pick<AcceptDeps, 'log' | 'config'>,
  prices: PriceMap | undefined,
): StepwiseWork<EncodedRun[]> {
  const prefix = buildWirePrefix(log.schemaId(runEvents));
  const receivedAtMicros = Date.now() * 1_000;
  const { workspaceId: tenantId, userId, keyId } = sender;
  const writer = new AvroWriter(estimateBytes(drafts));
  const messages: EncodedRun[] = [];
  for (const draft of drafts) {
    const { kind, runId, traceId, startTimeMicros, traceTimeMicros, dottedOrder, values } = draft;
    if (prices && mayHavePrice(values)) priceRun(values, startTimeMicros, prices);
    const start = writer.position;
    writer.raw(prefix);
    // Spreading a draft would cost a tenth of the CPU time of accepting runs.
    encodeRunEvent(writer, {
      kind,
      tenantId,
      traceId,
      runId,
      projectId: nilUuid,
      startTimeMicros,
      traceTimeMicros,
      receivedAtMicros,
      userId,
      keyId,
      dottedOrder,
      values,
    });
    const value = writer.since(start);
    if (value.length > maxRunBytes) {
      writer.rewind(start);
      rejected.add(runId, createRunTooLargeError(runId, maxRunBytes));
      continue;
    }
    messages.push({ key: `${tenantId}:${traceId}`, value, runId, draft });
    yield;
  }
  return messages;
}

/** Estimates the encoded size accurately enough that the buffer rarely has to grow. */
function estimateBytes(drafts: readonly RunDraft[]): number {
  let bytes = 1_024;
  for (const draft of drafts) {
    const { inputs, outputs, events, extra, serialized, error, tags } = draft.values;
    bytes += 512 + (draft.dottedOrder?.length ?? 0);
    for (const value of [inputs, outputs, events, extra, serialized, error, tags]) bytes += value?.length ?? 0;
  }
  return bytes;
}

/**
 * Maximum number of distinct projects that the runs of one request may name. Projects are resolved one after the other,
 * and each new one takes a transaction that locks the organisation.
 */
const maxProjectsPerRequest = 1_000;

/**
 * Finds or creates the project of every run and writes its id into the message. Each distinct project is resolved only
 * once. After one project exceeds the limit of the organisation, the request creates no others. A post that names no
 * project gets the project `default`. A patch that names no project keeps the nil UUID, and the sink assigns the
 * project of its trace.
 */
async function assignProjects(
  workspaceId: string,
  runs: readonly EncodedRun[],
  projects: ProjectResolver,
  rejected: Rejections,
): Promise<EncodedRun[]> {
  const found = new Map<string, { projectId: string } | { error: unknown }>();
  const resolvedRuns: EncodedRun[] = [];
  let creationError: RunlakeError | undefined;
  for (const run of runs) {
    const { kind, projectId: sessionId, projectName: sessionName, agentProject } = run.draft;
    if (kind === 'patch' && sessionId === undefined && sessionName === undefined && agentProject === undefined) {
      resolvedRuns.push(run);
      continue;
    }
    const key = `${kind}|${sessionId ?? ''}|${agentProject ?? ''}|${sessionName ?? ''}`;
    let project = found.get(key);
    if (project === undefined && found.size === maxProjectsPerRequest) {
      const limit = 'distinct projects of one request';
      project = { error: runlakeError('TOO_MANY_PARTS', { limitParts: maxProjectsPerRequest, limit }) };
    } else if (project === undefined) {
      project = await projects
        .resolve({ workspaceId, sessionId, sessionName, agentProject, isPatch: kind === 'patch', creationError })
        .then((projectId) => ({ projectId }))
        .catch((error: unknown) => ({ error }));
      if ('error' in project && isRunlakeError(project.error) && project.error.code === 'LIMIT_REACHED')
        creationError = project.error;
      found.set(key, project);
    }
    if ('projectId' in project) {
      writeProjectId(run.value, project.projectId);
      resolvedRuns.push(run);
    } else rejected.addCaught(run.draft.runId, project.error);
  }
  return resolvedRuns;
}

/** Dependencies of the functions that accept runs. */
export interface AcceptDeps {
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  readonly projects: ProjectResolver;
  readonly prices: PriceMaps;
  readonly runLocations: RunLocations;
  readonly config: Pick<
    Config,
    'maxBodyBytes' | 'maxRunBytes' | 'maxRunAgeDays' | 'maxParts' | 'maxJsonDepth' | 'patchWaitMs'
  >;
  /** Not needed for endpoints that do not accept feedback. */
  readonly feedback?: PrepareDeps;
  /** Counts accepted runs, and counts rejected runs by error code. */
  readonly count: (accepted: number, rejected: readonly Rejection[]) => void;
}

/**
 * An attachment or a feedback entry in a request. If the request also contains events of the same run and all of these
 * are rejected, the attachment or feedback entry is rejected too.
 */
export interface Companion {
  readonly topic: Topic;
  readonly runId: string;
  /** Name of the multipart part that contains it, for rejections. */
  readonly part: string;
  readonly message: LogMessage;
}

export interface DraftedRequest {
  readonly sender: Sender;
  readonly drafts: readonly RunDraft[];
  /** Items that were rejected before. Others are added. */
  readonly rejected: Rejections;
  readonly companions?: readonly Companion[];
  /** Creates the error of a request of which nothing was accepted. Default: {@link createAllRejectedError}. */
  readonly createError?: (rejected: readonly Rejection[]) => RunlakeError;
}

/**
 * Publishes the runs of one request and their companions. Resolves when all accepted events are durable. A rejected run
 * does not affect other runs.
 *
 * @throws the error that `createError` creates if nothing in the request was accepted; EVENT_LOG_UNAVAILABLE, OVERLOADED
 *   or DRAINING if the log did not accept the events, in which case nothing is acknowledged.
 */
export async function acceptDrafts(
  { sender, drafts, rejected, companions = [], createError = createAllRejectedError }: DraftedRequest,
  deps: AcceptDeps,
): Promise<Acceptance> {
  const timelyDrafts = await runInTimeSlices(selectTimelyDrafts(drafts, rejected, deps.config));
  const hasPrices = timelyDrafts.some(({ values }) => mayHavePrice(values));
  const prices = hasPrices ? await deps.prices.load(sender.workspaceId) : undefined;
  const encoded = await runInTimeSlices(encodeRuns({ sender, drafts: timelyDrafts, rejected }, deps, prices));
  // Assign projects last, because this creates missing projects, and a rejected run must not leave an empty project.
  const messages = await assignProjects(sender.workspaceId, encoded, deps.projects, rejected);
  const remaining = rejectCompanionsOfRejectedRuns(companions, messages, rejected);
  const acceptedCompanions = addTraceHeaders(remaining, messages);
  const accepted = messages.length + acceptedCompanions.length;
  if (accepted === 0 && rejected.items.length > 0) {
    deps.count(0, rejected.items);
    throw createError(rejected.items);
  }
  const topics = new Map<Topic, LogMessage[]>([[runEvents, [...messages]]]);
  for (const { topic, message } of acceptedCompanions) {
    const topicMessages = topics.get(topic);
    if (topicMessages === undefined) topics.set(topic, [message]);
    else topicMessages.push(message);
  }
  const published = [...topics].map(([topic, events]) => deps.log.publish(topic, events));
  // Report a failure only after every event of the request has been published or refused.
  const outcomes = await Promise.allSettled(published);
  for (const outcome of outcomes) {
    if (outcome.status !== 'rejected') continue;
    const error: unknown = outcome.reason;
    deps.count(
      0,
      isRunlakeError(error)
        ? [...rejected.items, ...messages.map(({ runId: run }) => ({ run, error }))]
        : rejected.items,
    );
    throw error;
  }
  deps.count(messages.length, rejected.items);
  return { accepted, rejected: rejected.items };
}

/**
 * Adds the companions of rejected runs to `rejected`, each with the error of its run, and returns the remaining
 * companions. A run counts as accepted if any of its events was accepted: if only the patch of a run was rejected, the
 * companions of the run are accepted.
 */
function rejectCompanionsOfRejectedRuns(
  companions: readonly Companion[],
  accepted: readonly EncodedRun[],
  rejected: Rejections,
): readonly Companion[] {
  if (companions.length === 0 || rejected.items.length === 0) return companions;
  const errors = new Map(rejected.items.map(({ run, error }) => [run, error]));
  for (const { runId } of accepted) errors.delete(runId);
  return companions.filter(({ runId, part }) => {
    const error = errors.get(runId);
    if (error !== undefined) rejected.add(part, error);
    return error === undefined;
  });
}

function addTraceHeaders(companions: readonly Companion[], runs: readonly EncodedRun[]): readonly Companion[] {
  if (!companions.some(({ topic }) => topic === attachmentEvents)) return companions;
  const runsById = new Map<string, { readonly draft: RunDraft; readonly projectId: string }>();
  for (const { runId, draft, value } of runs) {
    const known = runsById.get(runId);
    if (known === undefined || known.projectId === nilUuid)
      runsById.set(runId, { draft, projectId: readProjectId(value) });
  }
  return companions.map((companion) => {
    const found = companion.topic === attachmentEvents ? runsById.get(companion.runId) : undefined;
    if (found === undefined) return companion;
    const headers = buildTraceHeaders({ ...found.draft, projectId: found.projectId });
    return { ...companion, message: { ...companion.message, headers } };
  });
}

function* selectTimelyDrafts(
  drafts: readonly RunDraft[],
  rejected: Rejections,
  limits: TimeLimits,
): StepwiseWork<RunDraft[]> {
  const nowMicros = Date.now() * 1_000;
  const inRange: RunDraft[] = [];
  for (const draft of drafts) {
    dropUnusableFirstToken(draft.values);
    const reason = findTimesError(draft, nowMicros, limits);
    if (reason === undefined) inRange.push(clampTimes(draft, nowMicros, limits));
    else rejected.addInconsistentRun(draft.runId, reason);
    yield;
  }
  return inRange;
}
