import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import type { FeedbackDeps } from './feedback-deps.ts';
import { feedbackMembers, feedbackReader } from './feedback-members.ts';
import { feedbackMessage } from './feedback-message.ts';
import { readChangedValues } from './feedback-values.ts';
import { runExclusive } from './in-turn.ts';
import { readLastEvent } from './last-event.ts';
import { showFeedback } from './show-feedback.ts';
import { versionAfter } from './version.ts';

/**
 * Changes those of score, value, comment and correction that the body contains; null removes a value. Returns the
 * complete feedback as JSON once it is durable.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; INVALID_FEEDBACK, INVALID_JSON, INVALID_UTF8, TOO_DEEP,
 * PARAMETER_NOT_SUPPORTED, RUN_TOO_LARGE; errors of the log and the stores.
 */
export async function updateFeedback(
  deps: FeedbackDeps,
  { tenantId, id }: { readonly tenantId: string; readonly id: string },
  body: Buffer,
): Promise<Buffer> {
  const members = feedbackMembers(body, { part: 'the body', maxDepth: deps.config.maxJsonDepth });
  const changes = readChangedValues(feedbackReader(id, members), members);
  return runExclusive(`${tenantId}:${id}`, async () => {
    const last = await readLastEvent(deps, { tenantId, id, waitMs: deps.waitMs });
    if (last === undefined || last.deletedAtMicros !== undefined)
      throw runlakeError('NOT_FOUND', { what: `Feedback ${id}` });
    const receivedAtMicros = versionAfter(last);
    const event = { ...last, ...changes, receivedAtMicros, modifiedAtMicros: receivedAtMicros };
    await deps.log.publish(feedbackEvents, [feedbackMessage(event, deps.log, deps.config)]);
    deps.recent.remember(event);
    const [json] = await showFeedback(deps, tenantId, [event], { withUserNames: false });
    return json as Buffer;
  });
}
