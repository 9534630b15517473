import { buildWirePrefix } from '../../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { encodeStreamEvents } from '../../../pipelines/streams/encode-stream-event.ts';
import type { StreamEvent } from '../../../pipelines/streams/stream-event.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { deriveUuid } from '../runs/run-events.ts';

export const deploymentId = deriveUuid('deployment');
const threadId = deriveUuid('thread');

const dayMicros = 86_400_000_000;

/** Returns a stream event, by default a stored event that expires in a day. */
export function streamEvent(event: Partial<StreamEvent> = {}): StreamEvent {
  const createdAtMicros = event.createdAtMicros ?? Date.now() * 1_000;
  return {
    deploymentId,
    threadId,
    runId: deriveUuid('run'),
    attempt: 1,
    seq: 0,
    threadSeq: event.seq ?? 0,
    mode: 'values',
    event: 'values',
    namespace: '',
    data: Buffer.from(JSON.stringify({ attempt: event.attempt ?? 1, seq: event.seq ?? 0 })),
    isEnd: false,
    kept: true,
    createdAtMicros,
    expiresAtMicros: createdAtMicros + dayMicros,
    ...event,
  };
}

/**
 * Encodes a stream event as a log message. All events of a thread have the same key, because the stream of a thread
 * contains the events of all its runs.
 */
export function streamMessage(event: StreamEvent, log: Pick<EventLog, 'schemaId'>): LogMessage {
  const [value] = encodeStreamEvents(buildWirePrefix(log.schemaId(streamEvents)), event, [event]);
  return { key: `${event.deploymentId}:${event.threadId}`, value: value as Buffer };
}
