/** The metrics of the event log, which are the same for all adapters, and the trace span of a publish. */
import type { Topic } from '../../schemas/topics.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { counter, histogram, scrapedGauge } from '../telemetry/metrics.ts';

import { tracePublish } from '../telemetry/tracing/spans.ts';
import type { LogMessage } from './event-log.ts';

const producedEvents = counter(
  'runlake_event_log_produced_events_total',
  'Events that the event log made durable, by topic.',
  ['topic'],
);

const producedBytes = counter(
  'runlake_event_log_produced_bytes_total',
  'Bytes of the events that the event log made durable, by topic.',
  ['topic'],
);

const publishSeconds = histogram(
  'runlake_event_log_publish_seconds',
  'Time from publishing the events of a request until they are durable, by topic and outcome: taken, or the error code.',
  ['topic', 'outcome'],
  [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
);

export const pendingBytes = scrapedGauge(
  'runlake_event_log_pending_bytes',
  'Bytes of events that the event log holds in the memory of this process: with Kafka until they are durable, without it until they are stored.',
  [],
);

export const consumerLag = scrapedGauge(
  'runlake_event_log_lag_events',
  'Events of the log that are not stored yet, by topic and partition.',
  ['topic', 'partition'],
);

export const waitingDeadLetters = scrapedGauge(
  'runlake_dead_letters_waiting',
  'Dead-letter records that were not replayed, by original topic. Counts at most 100,000.',
  ['topic'],
);

/**
 * Wraps the `publish` method of every adapter. Measures, counts and traces the messages that `send` makes durable. If
 * the request is traced, `send` receives copies of the messages that contain the context of the span in the header
 * `traceparent`.
 *
 * @throws the errors of `send`.
 */
export async function observePublish(
  topic: Topic,
  messages: readonly LogMessage[],
  send: (messages: readonly LogMessage[]) => Promise<void>,
): Promise<void> {
  const startedAtMs = performance.now();
  let outcome = 'taken';
  try {
    await tracePublish(topic.name, messages, send);
    producedEvents.inc({ topic: topic.name }, messages.length);
    producedBytes.inc({ topic: topic.name }, sumValueBytes(messages));
  } catch (error) {
    outcome = isRunlakeError(error) ? error.code : 'INTERNAL';
    throw error;
  } finally {
    publishSeconds.observe({ topic: topic.name, outcome }, (performance.now() - startedAtMs) / 1_000);
  }
}

/** Returns the total size of the message values in bytes, without headers. */
export function sumValueBytes(messages: readonly LogMessage[]): number {
  return messages.reduce((sum, message) => sum + message.value.length, 0);
}
