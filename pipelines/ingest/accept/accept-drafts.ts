import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { runEvents, type Topic } from '../../../schemas/topics.ts';
import type { ProjectResolver } from '../../projects/resolve-project.ts';
import { inSlices, type StepwiseWork } from '../in-slices.ts';
import { assignProjects } from './assign-projects.ts';
import { type TimeLimits, timesError } from './check-times.ts';
import type { Acceptance, Rejection, RunDraft } from './draft.ts';
import { type EncodedRun, encodeRuns, type Sender } from './publish-runs.ts';
import { inconsistent, nothingTaken } from './rejection.ts';
import type { RunLocations } from './run-locations.ts';

/** Dependencies of the functions that accept runs. */
export interface AcceptDeps {
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  readonly projects: ProjectResolver;
  readonly runLocations: RunLocations;
  readonly config: Pick<Config, 'maxRunBytes' | 'maxRunAgeDays' | 'maxParts' | 'maxJsonDepth' | 'patchWaitMs'>;
  /** Counts accepted runs, and rejected ones by error code. */
  readonly count: (accepted: number, rejected: readonly Rejection[]) => void;
}

/** An attachment or a feedback of the same request. If the request's events of its run are rejected, so is the companion. */
export interface Companion {
  readonly topic: Topic;
  readonly runId: string;
  /** Name of its part in the request, for rejections. */
  readonly part: string;
  readonly message: LogMessage;
}

/**
 * Publishes the runs of one request and their companions. Resolves when everything that was accepted is durable. A
 * rejected run does not affect the others.
 *
 * @throws the error that `refusal` builds ({@link nothingTaken} by default) if nothing of the request was accepted;
 *   EVENT_LOG_UNAVAILABLE, OVERLOADED or DRAINING if the log did not accept the events, in which case nothing is
 *   acknowledged.
 */
export async function acceptDrafts(
  sender: Sender,
  drafts: readonly RunDraft[],
  rejected: Rejection[],
  deps: AcceptDeps,
  companions: readonly Companion[] = [],
  refusal: (rejected: readonly Rejection[]) => RunlakeError = nothingTaken,
): Promise<Acceptance> {
  const timely = await inSlices(timelyDrafts(drafts, rejected, deps.config));
  const resolved = await assignProjects(sender.workspaceId, timely, deps.projects, rejected);
  const messages = await inSlices(encodeRuns(sender, resolved, deps.log, deps.config, rejected));
  const accompanying = rejectWithTheirRuns(companions, messages, rejected);
  const accepted = messages.length + accompanying.length;
  if (accepted === 0 && rejected.length > 0) {
    deps.count(0, rejected);
    throw refusal(rejected);
  }
  const topics = new Map<Topic, LogMessage[]>([[runEvents, [...messages]]]);
  for (const { topic, message } of accompanying) {
    const ofTopic = topics.get(topic);
    if (ofTopic === undefined) topics.set(topic, [message]);
    else ofTopic.push(message);
  }
  const published = [...topics].map(([topic, events]) => deps.log.publish(topic, events));
  // Answer a failure only when no event of the request is in flight any more.
  const outcomes = await Promise.allSettled(published);
  for (const outcome of outcomes) {
    if (outcome.status !== 'rejected') continue;
    const error: unknown = outcome.reason;
    deps.count(
      0,
      isRunlakeError(error) ? [...rejected, ...messages.map(({ runId: run }) => ({ run, error }))] : rejected,
    );
    throw error;
  }
  deps.count(messages.length, rejected);
  return { accepted, rejected };
}

/**
 * Adds the companions of rejected runs to `rejected`, each with the error of its run, and returns the others. A run
 * counts as accepted if any of its events was: if only the patch of a run was rejected, its companions are accepted.
 */
function rejectWithTheirRuns(
  companions: readonly Companion[],
  accepted: readonly EncodedRun[],
  rejected: Rejection[],
): readonly Companion[] {
  if (companions.length === 0 || rejected.length === 0) return companions;
  const errors = new Map(rejected.map(({ run, error }) => [run, error]));
  for (const { runId } of accepted) errors.delete(runId);
  return companions.filter(({ runId, part }) => {
    const error = errors.get(runId);
    if (error !== undefined) rejected.push({ run: part, error });
    return error === undefined;
  });
}

function* timelyDrafts(
  drafts: readonly RunDraft[],
  rejected: Rejection[],
  limits: TimeLimits,
): StepwiseWork<RunDraft[]> {
  const nowMicros = Date.now() * 1_000;
  const timely: RunDraft[] = [];
  for (const draft of drafts) {
    const reason = timesError(draft, nowMicros, limits);
    if (reason === undefined) timely.push(draft);
    else rejected.push(inconsistent(draft.runId, reason));
    yield;
  }
  return timely;
}
