import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { liveProjectIds } from '../runs/live-projects.ts';
import { buildDeletion } from './delete-feedback.ts';
import type { FeedbackDeps } from './feedback-deps.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { feedbackMessage } from './feedback-message.ts';
import { runExclusive } from './in-turn.ts';
import { readLastEvent } from './last-event.ts';
import { type FeedbackSender, readFeedback } from './read-feedback.ts';
import { showFeedback } from './show-feedback.ts';
import { versionAfter } from './version.ts';

/**
 * Creates one feedback and returns it as JSON once it is durable. Its run may not be stored yet. Feedback with the same
 * id replaces the previous one, even if it refers to another run.
 *
 * @throws INVALID_FEEDBACK, INVALID_JSON, INVALID_UTF8, TOO_DEEP, PARAMETER_NOT_SUPPORTED, RUN_TOO_LARGE;
 *   PROJECT_UNKNOWN for feedback on a missing project; errors of the log and the stores.
 */
export async function createFeedback(sender: FeedbackSender, body: Buffer, deps: FeedbackDeps): Promise<Buffer> {
  const read = readFeedback(sender, { bytes: body, part: 'the body' }, deps.config, randomUUID);
  const { tenantId, id, runId, projectId } = read;
  if (runId === nilUuid && projectId !== undefined) {
    const live = await liveProjectIds(deps.database, tenantId, [projectId]);
    if (live.length === 0) throw runlakeError('PROJECT_UNKNOWN', { project: projectId });
  }
  return runExclusive(`${tenantId}:${id}`, async () => {
    const last = await readLastEvent(deps, { tenantId, id, waitMs: 0 });
    const moved = last !== undefined && last.runId !== runId && last.deletedAtMicros === undefined;
    const deletions = moved ? [buildDeletion(last)] : [];
    const event: FeedbackEvent = { ...read, receivedAtMicros: versionAfter(deletions[0] ?? last) };
    await deps.log.publish(
      feedbackEvents,
      [...deletions, event].map((each) => feedbackMessage(each, deps.log, deps.config)),
    );
    deps.recent.remember(event);
    const [json] = await showFeedback(deps, tenantId, [event], { withUserNames: false });
    return json as Buffer;
  });
}
