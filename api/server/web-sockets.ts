import { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import websocket from '@fastify/websocket';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';

/**
 * Makes Node ignore `Upgrade` headers other than WebSocket. The HTTP client of Java sends `Upgrade: h2c` by default and
 * expects an ordinary response (RFC 9110, 7.8). If there is an `upgrade` listener, Node passes every upgrade request to
 * it without the body. Node reads `upgrade` after the headers; the getter returns true only for WebSockets and CONNECT.
 */
export class WebSocketAwareMessage extends IncomingMessage {
  // Declared without an initial value, because Node sets `upgrade` before class fields are initialised.
  declare private requested: boolean | null;

  set upgrade(requested: boolean | null) {
    this.requested = requested;
  }

  get upgrade(): boolean {
    return (
      this.requested === true && (this.method === 'CONNECT' || this.headers.upgrade?.toLowerCase() === 'websocket')
    );
  }
}

/** Maximum size of a message. If a client sends a longer message, the socket is closed with code 1009. */
const maxMessageBytes = 1024 * 1024;

/**
 * Enables WebSockets on routes that declare a socket. Upgrade requests pass the same steps as every other request.
 * Routes without a socket refuse them.
 *
 * Node no longer tracks a connection that requested an upgrade, but `server.close` still waits for it. This function
 * therefore closes a refused connection immediately after the response, and closes all other upgraded connections when
 * the server closes.
 */
export async function acceptWebSockets(server: FastifyInstance): Promise<void> {
  const upgradingSockets = new Set<Duplex>();
  server.server.on('upgrade', (_request, socket: Duplex) => {
    upgradingSockets.add(socket);
    socket.once('close', () => upgradingSockets.delete(socket));
  });
  server.addHook('onResponse', async ({ raw: { socket } }) => {
    if (upgradingSockets.has(socket)) socket.destroySoon();
  });
  server.addHook('onClose', async () => {
    for (const socket of upgradingSockets) socket.destroy();
  });
  server.addHook('onRequest', async (request, reply) => {
    if (request.headers.upgrade !== undefined && isForeignOrigin(request, reply)) {
      throw runlakeError('AUTH_FORBIDDEN', { reason: 'Pages of this origin must not open a WebSocket here.' });
    }
  });
  await server.register(websocket, {
    options: { maxPayload: maxMessageBytes },
    // The peer sent an invalid frame. The library has already closed the socket with the appropriate code.
    errorHandler: (err, _socket, request) => request.log.debug({ err }, 'WebSocket protocol error'),
    // The operation that serves a socket closes the socket when the server drains.
    preClose: (done) => done(),
  });
}

/**
 * Returns true if the request comes from a page of another origin and the browser added credentials (a cookie or Basic)
 * by itself. CORS does not protect WebSockets; without this check, such a page could read the socket. If CORS allows
 * the origin, the response headers contain it. Source: RFC 6455, 10.2.
 */
function isForeignOrigin({ headers, host }: FastifyRequest, reply: FastifyReply): boolean {
  const { origin, cookie, authorization = '' } = headers;
  if (origin === undefined || (cookie === undefined && !/^basic /i.test(authorization))) return false;
  return reply.getHeader('access-control-allow-origin') !== origin && origin.replace(/^https?:\/\//, '') !== host;
}
