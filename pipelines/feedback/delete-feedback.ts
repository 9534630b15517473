import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import type { FeedbackDeps } from './feedback-deps.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { feedbackMessage } from './feedback-message.ts';
import { runExclusive } from './in-turn.ts';
import { readLastEvent } from './last-event.ts';
import { versionAfter } from './version.ts';

/**
 * Deletes one feedback and its content.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; errors of the log and the stores.
 */
export async function deleteFeedback(deps: FeedbackDeps, tenantId: string, id: string): Promise<void> {
  await runExclusive(`${tenantId}:${id}`, async () => {
    const last = await readLastEvent(deps, { tenantId, id, waitMs: deps.waitMs });
    if (last === undefined || last.deletedAtMicros !== undefined)
      throw runlakeError('NOT_FOUND', { what: `Feedback ${id}` });
    const deletion = buildDeletion(last);
    await deps.log.publish(feedbackEvents, [feedbackMessage(deletion, deps.log, deps.config)]);
    deps.recent.remember(deletion);
  });
}

/** The event that deletes the feedback of `last`. It keeps only ids, user and creation time. */
export function buildDeletion(last: FeedbackEvent): FeedbackEvent {
  const { tenantId, runId, id, projectId, userId, createdAtMicros } = last;
  const receivedAtMicros = versionAfter(last);
  return {
    tenantId,
    runId,
    id,
    projectId,
    userId,
    createdAtMicros,
    key: '',
    sourceType: '',
    receivedAtMicros,
    modifiedAtMicros: receivedAtMicros,
    deletedAtMicros: receivedAtMicros,
  };
}
