import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { runEvents, type Topic } from '../../../schemas/topics.ts';
import type { ProjectResolver } from '../../projects/resolve-project.ts';
import { inSlices, type StepwiseWork } from '../in-slices.ts';
import { assignProjects } from './assign-projects.ts';
import { type TimeLimits, timesFault } from './check-times.ts';
import type { Acceptance, Rejection, RunDraft } from './draft.ts';
import { encodeRuns, type Sender } from './publish-runs.ts';
import { inconsistent, nothingTaken } from './rejection.ts';
import type { RunPlaces } from './run-places.ts';

/** What accepting needs of the rest of the system. */
export interface AcceptPorts {
  readonly log: EventLog;
  readonly projects: ProjectResolver;
  readonly runPlaces: RunPlaces;
  readonly config: Pick<
    Config,
    'maxRunBytes' | 'maxRunAgeDays' | 'maxRunAheadHours' | 'maxParts' | 'maxJsonDepth' | 'patchWaitMs'
  >;
  /** Counts what was taken and what was not, by error code. */
  readonly count: (accepted: number, rejected: readonly Rejection[]) => void;
}

/** Events of other topics that came with the runs; the answer waits for them too. */
export interface Companions {
  readonly topic: Topic;
  readonly messages: readonly LogMessage[];
}

/**
 * Takes drafts of one request to the log. Resolves when all that was taken is durable; inconsistent runs do not keep
 * the others back.
 *
 * @throws the fault of `refusal`, {@link nothingTaken} unless the request says otherwise, where nothing of the request could be taken; EVENT_LOG_UNAVAILABLE, OVERLOADED
 *   or DRAINING where the log did not take it, in which case nothing is acknowledged.
 */
export async function acceptDrafts(
  sender: Sender,
  drafts: readonly RunDraft[],
  rejected: Rejection[],
  ports: AcceptPorts,
  companions: readonly Companions[] = [],
  refusal: (rejected: readonly Rejection[]) => RunlakeError = nothingTaken,
): Promise<Acceptance> {
  const timely = await inSlices(timelyDrafts(drafts, rejected, ports.config));
  const placed = await assignProjects(sender.workspaceId, timely, ports.projects, rejected);
  const messages = await inSlices(encodeRuns(sender, placed, ports.log, ports.config, rejected));
  const accompanying = companions.filter((companion) => companion.messages.length > 0);
  if (messages.length === 0 && accompanying.length === 0 && rejected.length > 0) {
    ports.count(0, rejected);
    throw refusal(rejected);
  }
  const published = [{ topic: runEvents, messages }, ...accompanying].map(({ topic, messages: events }) =>
    ports.log.publish(topic, events),
  );
  // A failure is answered only when nothing of the request is under way any more.
  const ends = await Promise.allSettled(published);
  for (const end of ends) {
    if (end.status !== 'rejected') continue;
    const error: unknown = end.reason;
    ports.count(
      0,
      isRunlakeError(error) ? [...rejected, ...messages.map(({ key: run }) => ({ run, error }))] : rejected,
    );
    throw error;
  }
  ports.count(messages.length, rejected);
  return { accepted: messages.length, rejected };
}

function* timelyDrafts(
  drafts: readonly RunDraft[],
  rejected: Rejection[],
  limits: TimeLimits,
): StepwiseWork<RunDraft[]> {
  const nowMicros = Date.now() * 1_000;
  const timely: RunDraft[] = [];
  for (const draft of drafts) {
    const reason = timesFault(draft, nowMicros, limits);
    if (reason === undefined) timely.push(draft);
    else rejected.push(inconsistent(draft.runId, reason));
    yield;
  }
  return timely;
}
