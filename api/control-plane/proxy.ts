/**
 * Serves deployments below `/deployments/{slug}` of the main port. Requests go to a replica unchanged: the replica
 * authenticates the caller, and its limits and CORS settings apply. Bodies are streamed in both directions, and neither
 * parsed nor buffered, except the first {@link maxKeptBytes} of a request for another attempt.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import replyFrom from '@fastify/reply-from';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { ReplicaFinder } from '../../pipelines/deployments/find-replica-url.ts';
import type { MountedRoutes } from '../server/api-form.ts';
import { getRequestOrigin } from '../server/public-base.ts';
import type { WebSocketAwareMessage } from '../server/web-sockets.ts';
import { type ExchangeDeps, exchangeSession } from './exchange-session.ts';
import { toClientHeaders, toReplicaHeaders } from './proxy-headers.ts';
import { type KeptBytes, RequestBody } from './request-body.ts';
import { type ProxiedRequest, ReplicaDispatcher } from './send-to-replica.ts';
import { openTunnel, type ProxyTarget, routeUpgrades } from './tunnel.ts';

/** First segment of the paths of deployments. */
const deploymentsSegment = 'deployments';

/**
 * Limits of request bodies that are kept until a replica has accepted the request. The proxy does not know who sends
 * them, so all requests together have a limit, too.
 */
const maxKeptBytes = 256 * 1024;
const maxTotalKeptBytes = 32 * 1024 * 1024;

/**
 * Splits a request target into the path of the deployment, the path within it, and the query. A target may be a whole
 * URL (RFC 9112, 3.2.2).
 */
const targetPattern = new RegExp(`^(?:https?://[^/?]*)?(/+${deploymentsSegment}/+[^/?]+)([^?]*)(.*)$`, 'is');

/**
 * `replicas` is called for each request and each attempt. `sessions` is read at each request; unset: requests with a
 * session have no access. A WebSocket is closed if one side does not read pending bytes for `stallTimeoutMs`: the proxy
 * then does not read from the other side, and would not notice that it has disconnected.
 */
export function createDeploymentProxy(
  replicas: ReplicaFinder,
  {
    stallTimeoutMs = 60_000,
    sessions,
  }: { readonly stallTimeoutMs?: number | undefined; readonly sessions?: ExchangeDeps } = {},
): MountedRoutes {
  return {
    segment: deploymentsSegment,
    register: async (scope) => {
      const dispatcher = new ReplicaDispatcher();
      const kept: KeptBytes = { maxBytes: maxKeptBytes, maxTotalBytes: maxTotalKeptBytes, usedBytes: 0 };
      scope.addHook('onClose', () => dispatcher.close());
      await scope.register(replyFrom, { undici: dispatcher as never, disableRequestLogging: true, disableCache: true });
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
      routeUpgrades(scope);
      for (const url of [`/${deploymentsSegment}/:slug`, `/${deploymentsSegment}/:slug/*`]) {
        scope.route<{ Params: { slug: string } }>({
          method: scope.supportedMethods,
          exposeHeadRoute: false,
          url,
          schema: { hide: true },
          config: { metricName: 'proxyDeployment' },
          // The plugin logs each failed and each cancelled request as a warning; errors are logged once, when they are sent.
          logLevel: 'error',
          handler: async (request, reply) => {
            const { slug } = request.params;
            const ticket = sessions && (await exchangeSession(request, slug, sessions));
            const target = { ...readTarget(request, slug), ticket };
            if ((request.raw as WebSocketAwareMessage).upgrade)
              return openTunnel(request, reply, target, { replicas, stallTimeoutMs });
            return forward(request, reply, target, { dispatcher, replicas, kept });
          },
        });
      }
    },
  };
}

/** @throws BAD_REQUEST if a segment of the path begins or ends with `..`, or for a backslash, which the plugin refuses. */
function readTarget({ originalUrl }: FastifyRequest, slug: string): ProxyTarget {
  const [, , path = '', query = ''] = targetPattern.exec(originalUrl) ?? [];
  if (/\/\.\.|\.\.\//.test(decodeURIComponent(path)) || path.includes('\\'))
    throw runlakeError('BAD_REQUEST', { reason: 'The path must not contain `/..`, `../` or a backslash.' });
  return { slug, prefix: `/${deploymentsSegment}/${slug}`, path: path || '/', query };
}

function forward(
  request: FastifyRequest,
  reply: FastifyReply,
  { slug, prefix, path, ticket }: ProxyTarget,
  {
    dispatcher,
    replicas,
    kept,
  }: { readonly dispatcher: ReplicaDispatcher; readonly replicas: ReplicaFinder; readonly kept: KeptBytes },
): FastifyReply {
  const proxied: ProxiedRequest = {
    slug,
    replicas,
    body: request.body instanceof Readable ? new RequestBody(request.body, kept) : undefined,
    signal: request.disconnected,
    rewriteHeaders: (response, replicaUrl) =>
      toClientHeaders(response, { prefix, origins: [getRequestOrigin(request), replicaUrl] }),
  };
  return dispatcher.run(proxied, () =>
    reply.from(path, {
      // A placeholder that the dispatcher replaces.
      getUpstream: () => 'http://replica',
      // The default retries GET requests after 503 and interprets the seconds of Retry-After as milliseconds.
      retryDelay: () => null,
      rewriteRequestHeaders: () => toReplicaHeaders(request, prefix, ticket) as IncomingHttpHeaders,
      onResponse: (_request, _reply, { stream }) => sendBody(reply, stream),
      onError: (_reply, { error }) => reply.send(toRunlakeFailure(error)),
    }),
  );
}

/**
 * Sends the body of a response as it arrives. When this server drains, event streams are aborted, so that their clients
 * reconnect; other responses may finish within the drain timeout.
 */
function sendBody(reply: FastifyReply, body: Readable): void {
  if (reply.getHeader('content-length') === undefined) {
    // The client gets the headers before the first event.
    reply.raw.once('pipe', () => reply.raw.flushHeaders());
  }
  if (String(reply.getHeader('content-type')).startsWith('text/event-stream')) {
    const { drainStarted } = reply.server;
    const cut = () => body.destroy(runlakeError('DRAINING'));
    drainStarted.addEventListener('abort', cut, { once: true });
    body.once('close', () => drainStarted.removeEventListener('abort', cut));
  }
  reply.send(body);
}

/** The plugin wraps errors of the dispatcher. */
function toRunlakeFailure(error: Error): Error {
  return isRunlakeError(error.cause) ? error.cause : error;
}
