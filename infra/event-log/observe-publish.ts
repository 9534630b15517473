import type { Topic } from '../../schemas/topics.ts';
import { isRunlakeError } from '../errors/runlake-error.ts';
import { tracePublish } from '../telemetry/tracing/spans.ts';
import type { LogMessage } from './event-log.ts';
import { producedBytes, producedEvents, publishSeconds } from './event-log-metrics.ts';

/**
 * Wraps the `publish` of every adapter: measures, counts and traces what `send` makes durable. If the request is
 * traced, `send` gets copies of the messages that carry the span's context in the header `traceparent`.
 * @throws what `send` throws.
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
    producedBytes.inc({ topic: topic.name }, bytesOf(messages));
  } catch (error) {
    outcome = isRunlakeError(error) ? error.code : 'INTERNAL';
    throw error;
  } finally {
    publishSeconds.observe({ topic: topic.name, outcome }, (performance.now() - startedAtMs) / 1_000);
  }
}

/** Total bytes of the values, without headers. */
export function bytesOf(messages: readonly LogMessage[]): number {
  return messages.reduce((sum, message) => sum + message.value.length, 0);
}
