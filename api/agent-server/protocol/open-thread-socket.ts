import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { type Socket, serveThreadSocket } from './thread-socket.ts';

export const openThreadSocket = defineAgentOperation({
  operationId: 'openThreadSocket',
  method: 'GET',
  path: '/threads/:thread_id/stream/events',
  tag: 'event protocol',
  summary: 'Open a WebSocket of the event-stream protocol',
  description:
    'Commands of postThreadCommand, and subscription.subscribe {channels, namespaces, depth} and subscription.unsubscribe {subscription_id}. Each message is one JSON text of at most 1 MiB.',
  access: reads,
  errors: ['WEBSOCKET_EXPECTED'],
  schema: { params: ThreadParams, response: { 200: Type.Null() } },
  handler: async () => {
    throw runlakeError('WEBSOCKET_EXPECTED');
  },
  socket: (socket: Socket, { params, caller, services: { agents }, request }) =>
    serveThreadSocket(socket, { agents, caller, request, threadId: params.thread_id.toLowerCase() }),
});
