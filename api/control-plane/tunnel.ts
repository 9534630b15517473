/**
 * WebSockets of deployments. The connection of the client is piped to a connection to a replica, byte by byte. The
 * proxy therefore does not interpret the handshake, messages, pings or compression, and each side reads at the speed of
 * the other.
 */
import { request as httpRequest, type IncomingMessage, ServerResponse } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import { type Duplex, pipeline } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { ReplicaFinder } from '../../pipelines/deployments/find-replica-url.ts';
import { refusalHeader } from '../server/error-response.ts';
import { toClientHeaders, toHandshakeLines, toReplicaHeaders } from './proxy-headers.ts';
import { isConnectError } from './send-to-replica.ts';

export interface ProxyTarget {
  readonly slug: string;
  /** Path of the deployment, without a slash at the end. */
  readonly prefix: string;
  /** Path within the deployment. */
  readonly path: string;
  /** Query with its question mark, or an empty string. */
  readonly query: string;
  /** Ticket that replaces the session of the request. */
  readonly ticket?: string | undefined;
}

/** Time for a replica to accept or refuse a handshake. */
const handshakeTimeoutMs = 30_000;
const maxAttempts = 4;

/** Bytes that a client has sent after its handshake. */
const firstBytes = new WeakMap<IncomingMessage, Buffer>();

/**
 * Routes upgrade requests like all others, so that they pass the same hooks. A response other than 101 ends the
 * connection, because Node no longer reads requests from it. Connections end when the server drains or closes.
 */
export function routeUpgrades(scope: FastifyInstance): void {
  const { server, routing, drainStarted } = scope;
  const sockets = new Set<Duplex>();
  server.on('upgrade', (message: IncomingMessage, socket: Socket, head: Buffer) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    if (drainStarted.aborted) {
      socket.destroy();
      return;
    }
    firstBytes.set(message, head);
    const response = new ServerResponse(message);
    response.shouldKeepAlive = false;
    response.assignSocket(socket);
    response.once('finish', () => socket.destroySoon());
    routing(message, response);
  });
  const destroySockets = () => {
    for (const socket of sockets) socket.destroy();
  };
  drainStarted.addEventListener('abort', destroySockets);
  scope.addHook('preClose', async () => destroySockets());
}

/**
 * Opens a WebSocket on a replica and pipes it to that of the client. If the replica refuses, the client gets its
 * response, or another replica the handshake, if this one is starting or draining. @throws DEPLOYMENT_NOT_SERVING
 */
export async function openTunnel(
  request: FastifyRequest,
  reply: FastifyReply,
  { slug, prefix, path, query, ticket }: ProxyTarget,
  { replicas, stallTimeoutMs }: { readonly replicas: ReplicaFinder; readonly stallTimeoutMs: number },
): Promise<FastifyReply> {
  const { connection, upgrade } = request.headers;
  const headers = { ...toReplicaHeaders(request, prefix, ticket), connection, upgrade };
  const tried = new Set<string>();
  for (;;) {
    const { url } = await replicas.find(slug, { avoid: tried });
    tried.add(url);
    try {
      const answer = await shakeHands(new URL(url), path + query, { headers, client: request.raw.socket });
      if ('socket' in answer) {
        reply.hijack();
        join(request.raw, answer, { prefix, stallTimeoutMs });
        return reply;
      }
      const { message } = answer;
      // The replica is starting or draining and has processed nothing.
      if (message.headers[refusalHeader] !== undefined && tried.size < maxAttempts) {
        message.destroy();
        continue;
      }
      const origins = [`${request.protocol}://${request.host}`, url];
      const { statusCode: status = 502 } = message;
      reply.code(status).headers(toClientHeaders({ status, headers: message.headers }, { prefix, origins }));
      return reply.send(message);
    } catch (error) {
      if (!isConnectError(error) || tried.size === maxAttempts)
        throw runlakeError('DEPLOYMENT_NOT_SERVING', { deployment: slug }, { cause: error });
    }
  }
}

interface AcceptedHandshake {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes that the replica has sent after its handshake. */
  readonly head: Buffer;
}

/** Sends the handshake to a replica. Resolves with its response, also if it refuses. */
async function shakeHands(
  { protocol, hostname, port }: URL,
  path: string,
  { headers, client }: { readonly headers: object; readonly client: Socket },
): Promise<AcceptedHandshake | { readonly message: IncomingMessage }> {
  const outgoing = (protocol === 'https:' ? httpsRequest : httpRequest)({
    ...{ protocol, hostname, port, path, agent: false, timeout: handshakeTimeoutMs },
    headers: { ...headers },
  });
  const cancel = () => outgoing.destroy();
  client.once('close', cancel);
  try {
    return await new Promise((resolve, reject) => {
      outgoing.once('upgrade', (message, socket, head) => resolve({ message, socket, head }));
      outgoing.once('response', (message) => resolve({ message }));
      outgoing.once('timeout', cancel);
      outgoing.once('error', reject);
      outgoing.end();
    });
  } finally {
    client.off('close', cancel);
    outgoing.off('timeout', cancel);
  }
}

/** Ends both connections if one side has read nothing for `stallTimeoutMs` although bytes wait for it. */
function join(
  request: IncomingMessage,
  { message, socket: replica, head }: AcceptedHandshake,
  { prefix, stallTimeoutMs }: { readonly prefix: string; readonly stallTimeoutMs: number },
): void {
  const client = request.socket;
  for (const socket of [client, replica as Socket]) {
    socket.setTimeout(stallTimeoutMs);
    socket.on('timeout', () => {
      if (socket.writableLength > 0) socket.destroy();
    });
    socket.setNoDelay(true);
  }
  client.write(`${toHandshakeLines(message, prefix).join('\r\n')}\r\n\r\n`, 'latin1');
  client.write(head);
  replica.write(firstBytes.get(request) ?? Buffer.alloc(0));
  pipeline(client, replica, () => client.destroySoon());
  pipeline(replica, client, () => replica.destroy());
}
