import { fault } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import { feedbackMembers, feedbackReader } from './feedback-members.ts';
import { feedbackMessage } from './feedback-message.ts';
import { readChangedValues } from './feedback-values.ts';
import { inTurn } from './in-turn.ts';
import { lastEventOf } from './last-event.ts';
import type { FeedbackPorts } from './ports.ts';
import { showFeedback } from './show-feedback.ts';
import { versionAfter } from './version.ts';

/**
 * Changes score, value, comment and correction of one feedback, those that the body names: a null takes the value away. Gives the
 * whole feedback back as JSON once that is durable.
 *
 * @throws NOT_FOUND where the workspace has none with that id; INVALID_FEEDBACK, INVALID_JSON, INVALID_UTF8, TOO_DEEP,
 *   PARAMETER_NOT_SUPPORTED, RUN_TOO_LARGE; what log and stores throw.
 */
export async function updateFeedback(
  ports: FeedbackPorts,
  { tenantId, id }: { readonly tenantId: string; readonly id: string },
  body: Buffer,
): Promise<Buffer> {
  const members = feedbackMembers(body, { part: 'the body', maxDepth: ports.config.maxJsonDepth });
  const changes = readChangedValues(feedbackReader(id, members), members);
  return inTurn(`${tenantId}:${id}`, async () => {
    const last = await lastEventOf(ports, { tenantId, id, waitMs: ports.waitMs });
    if (last === undefined || last.deletedAtMicros !== undefined) throw fault('NOT_FOUND', { what: `Feedback ${id}` });
    const receivedAtMicros = versionAfter(last);
    const event = { ...last, ...changes, receivedAtMicros, modifiedAtMicros: receivedAtMicros };
    await ports.log.publish(feedbackEvents, [feedbackMessage(event, ports.log, ports.config)]);
    ports.recent.remember(event);
    const [json] = await showFeedback(ports, tenantId, [event], { withUserNames: false });
    return json as Buffer;
  });
}
