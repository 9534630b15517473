import { fault } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { feedbackMessage } from './feedback-message.ts';
import { runExclusive } from './in-turn.ts';
import { readLastEvent } from './last-event.ts';
import type { FeedbackPorts } from './ports.ts';
import { versionAfter } from './version.ts';

/**
 * Deletes one feedback and its content.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; errors of the log and the stores.
 */
export async function deleteFeedback(ports: FeedbackPorts, tenantId: string, id: string): Promise<void> {
  await runExclusive(`${tenantId}:${id}`, async () => {
    const last = await readLastEvent(ports, { tenantId, id, waitMs: ports.waitMs });
    if (last === undefined || last.deletedAtMicros !== undefined) throw fault('NOT_FOUND', { what: `Feedback ${id}` });
    const deletion = buildDeletion(last);
    await ports.log.publish(feedbackEvents, [feedbackMessage(deletion, ports.log, ports.config)]);
    ports.recent.remember(deletion);
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
