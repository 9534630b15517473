import type { Duplex } from 'node:stream';
import websocket from '@fastify/websocket';
import type { FastifyInstance } from 'fastify';

/** Of one message; a longer one closes its socket with 1009. */
const mostMessageBytes = 1024 * 1024;

/**
 * Lets routes that serve WebSockets do so, after the steps that every request passes; the others refuse them.
 *
 * Node forgets a connection that asks for an upgrade, and yet waits for it when the server closes. So one that was refused is ended here
 * as soon as it was told, and what is left of the others when the server closes.
 */
export async function acceptWebSockets(server: FastifyInstance): Promise<void> {
  const upgrading = new Set<Duplex>();
  server.server.on('upgrade', (_request, socket: Duplex) => {
    upgrading.add(socket);
    socket.once('close', () => upgrading.delete(socket));
  });
  server.addHook('onResponse', async ({ raw: { socket } }) => {
    if (upgrading.has(socket)) socket.destroySoon();
  });
  server.addHook('onClose', async () => {
    for (const socket of upgrading) socket.destroy();
  });
  await server.register(websocket, {
    options: { maxPayload: mostMessageBytes },
    // What a peer sent that is no WebSocket: the library has closed it, with a code that says so.
    errorHandler: (err, _socket, request) => request.log.debug({ err }, 'a WebSocket broke off'),
    // Whoever serves a socket closes it when the server drains.
    preClose: (done) => done(),
  });
}
