import { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import websocket from '@fastify/websocket';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { fault } from '../../infra/errors/runlake-error.ts';

/**
 * A request that asks for HTTP/2 on the connection (`Upgrade: h2c`), as the HTTP client of Java does by itself, is answered as if it did
 * not (RFC 9110, 7.8). Where upgrades are listened for, Node would hand over each, without its body. It asks here, when it has read the
 * headers, whether this is one.
 */
export class WebSocketOrPlain extends IncomingMessage {
  // Without a value of its own: Node sets `upgrade` before fields of this class have one.
  declare private asks: boolean | null;

  set upgrade(asks: boolean | null) {
    this.asks = asks;
  }

  get upgrade(): boolean {
    return this.asks === true && (this.method === 'CONNECT' || this.headers.upgrade?.toLowerCase() === 'websocket');
  }
}

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
  server.addHook('onRequest', async (request, reply) => {
    if (request.headers.upgrade !== undefined && isForeignPage(request, reply)) {
      throw fault('AUTH_FORBIDDEN', { reason: 'Pages of this origin may open no WebSocket here.' });
    }
  });
  await server.register(websocket, {
    options: { maxPayload: mostMessageBytes },
    // What a peer sent that is no WebSocket: the library has closed it, with a code that says so.
    errorHandler: (err, _socket, request) => request.log.debug({ err }, 'a WebSocket broke off'),
    // Whoever serves a socket closes it when the server drains.
    preClose: (done) => done(),
  });
}

/**
 * Whether a browser asks for a page of another origin, and sends by itself what tells who its user is. Nothing that is answered would
 * keep such a page from reading what comes on the socket. Those that CORS lets in are named in the answer. Source: RFC 6455, 10.2.
 */
function isForeignPage({ headers, host }: FastifyRequest, reply: FastifyReply): boolean {
  const { origin, cookie, authorization = '' } = headers;
  if (origin === undefined || (cookie === undefined && !/^basic /i.test(authorization))) return false;
  return reply.getHeader('access-control-allow-origin') !== origin && origin.replace(/^https?:\/\//, '') !== host;
}
