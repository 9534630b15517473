import type { StreamEvent } from '../../../pipelines/streams/stream-event.ts';
import { uuidOf } from '../runs/run-events.ts';

export { streamMessage } from '../../../pipelines/streams/stream-message.ts';

export const deploymentId = uuidOf('deployment');
export const threadId = uuidOf('thread');

const dayMicros = 86_400_000_000;

/** By default, a stored event that expires in a day. */
export function streamEvent(event: Partial<StreamEvent> = {}): StreamEvent {
  const createdAtMicros = event.createdAtMicros ?? Date.now() * 1_000;
  return {
    deploymentId,
    threadId,
    runId: uuidOf('run'),
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
