import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { AvroWriter } from '../../infra/event-log/avro-writer.ts';
import type { EventLog, LogMessage } from '../../infra/event-log/event-log.ts';
import { wirePrefix } from '../../infra/event-log/wire-format.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { encodeFeedback } from './encode-feedback.ts';
import type { FeedbackEvent } from './feedback-event.ts';

/**
 * Encodes a feedback as a log message, keyed by workspace and run (or project), so that one sink stores all its events.
 *
 * @throws RUN_TOO_LARGE
 */
export function feedbackMessage(
  event: FeedbackEvent,
  log: Pick<EventLog, 'schemaId'>,
  { maxRunBytes }: Pick<Config, 'maxRunBytes'>,
): LogMessage {
  const writer = new AvroWriter(1_024);
  writer.raw(wirePrefix(log.schemaId(feedbackEvents)));
  encodeFeedback(writer, event);
  const value = writer.since(0);
  const about = event.runId === nilUuid ? (event.projectId ?? nilUuid) : event.runId;
  if (value.length > maxRunBytes) {
    const run = `${about} with feedback ${event.id}`;
    throw runlakeError('RUN_TOO_LARGE', { run, limitBytes: maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
  }
  return { key: `${event.tenantId}:${about}`, value };
}
