import { Type } from 'typebox';
import { protocolMessage } from '../../../pipelines/agents/protocol/protocol-event.ts';
import type { StreamedEvent } from '../../../pipelines/agents/streams/stream-types.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { eventStream, eventStreamHeaders, type SseFrame } from '../streaming/sse.ts';
import type { CommandError } from './command.ts';
import { FilterSince } from './event-filter.ts';
import { openEvents } from './open-events.ts';
import { missingEvents, streamFailure } from './stream-failure.ts';

export const streamThreadEvents = defineAgentOperation({
  operationId: 'streamThreadEvents',
  method: 'POST',
  path: '/threads/:thread_id/stream/events',
  tag: 'event protocol',
  summary: 'Stream the events of a thread',
  description:
    'Server-sent events of the event-stream protocol, of all runs, until the client disconnects. The thread need not exist yet. The `event_id` of an event never changes, so that a client that reconnects can skip events that it has. Runs that were not started through the protocol have only the events of their stream modes.',
  access: reads,
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: FilterSince,
    response: { 200: Type.String() },
    produces: 'text/event-stream',
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const { reader, filter } = await openEvents(agents, params.thread_id.toLowerCase(), body);
    const stream = eventStream<StreamedEvent>({
      source: reader,
      frame: (event) => {
        const missing = missingEvents(event);
        const message = protocolMessage(event, filter);
        return [
          ...(missing ? [failureFrame(missing)] : []),
          ...(message ? [{ event: message.method, data: Buffer.from(message.text), id: message.id }] : []),
        ];
      },
      failure: (err) => failureFrame(streamFailure(err)),
      heartbeatMs: agents.config.agentsHeartbeatMs,
      stopping: request.server.drainStarted,
      accessEnded: request.access?.ended,
      clientReconnects: true,
      logger: request.log,
    });
    return new Answer({ headers: { 'content-type': 'text/event-stream', ...eventStreamHeaders }, body: stream });
  },
});

function failureFrame(failure: CommandError): SseFrame {
  return { event: 'error', data: Buffer.from(JSON.stringify(failure)) };
}
