import { fault } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import type { FeedbackEvent } from './feedback-event.ts';
import { feedbackMessage } from './feedback-message.ts';
import { inTurn } from './in-turn.ts';
import { lastEventOf } from './last-event.ts';
import type { FeedbackPorts } from './ports.ts';
import { versionAfter } from './version.ts';

/**
 * Deletes one feedback with what it says.
 * @throws NOT_FOUND where the workspace has none with that id; what log and stores throw.
 */
export async function deleteFeedback(ports: FeedbackPorts, tenantId: string, id: string): Promise<void> {
  await inTurn(`${tenantId}:${id}`, async () => {
    const last = await lastEventOf(ports, { tenantId, id, waitMs: ports.waitMs });
    if (last === undefined || last.deletedAtMicros !== undefined) throw fault('NOT_FOUND', { what: `Feedback ${id}` });
    const deletion = deletionOf(last);
    await ports.log.publish(feedbackEvents, [feedbackMessage(deletion, ports.log, ports.config)]);
    ports.recent.remember(deletion);
  });
}

/** The event that deletes what `last` said; nothing of it stays but who, when and on what. */
export function deletionOf(last: FeedbackEvent): FeedbackEvent {
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
