import { AvroWriter, wirePrefix } from '../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../infra/event-log/event-log.ts';
import { streamEvents } from '../../schemas/topics.ts';
import { encodeStreamEvent } from './encode-stream-event.ts';
import type { StreamEvent } from './stream-event.ts';

/**
 * Encodes a stream event as a log message. All events of a thread have the same key, because the stream of a thread
 * contains the events of all its runs.
 */
export function streamMessage(event: StreamEvent, log: Pick<EventLog, 'schemaId'>): LogMessage {
  const writer = new AvroWriter(event.data.length + 512);
  writer.raw(wirePrefix(log.schemaId(streamEvents)));
  encodeStreamEvent(writer, event);
  return { key: `${event.deploymentId}:${event.threadId}`, value: writer.since(0) };
}
