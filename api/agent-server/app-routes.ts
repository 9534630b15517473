import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { encodeUser, userHeader } from '../../pipelines/agents/app/app-route.ts';
import type { AppResponse, HttpApp } from '../../pipelines/agents/app/http-app.ts';
import type { AgentUser } from '../../pipelines/agents/auth/agent-user.ts';
import type { HttpSettings } from '../../pipelines/agents/graphs/http-settings.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { ApiProfile, CustomAccess, CustomRoutes } from '../server/api-form.ts';
import { identifyCaller } from '../server/authentication.ts';
import type { Services } from '../server/services.ts';
import { runAccess } from './agent-operation.ts';

/**
 * Returns the routes of the custom app. Routes that the app declares with a method and a path take precedence over the
 * server's own routes. The app also receives every request that matches no route of the server.
 *
 * The routes of the app need no authentication unless `http.enable_custom_route_auth` is set. If it is set, the routes
 * require custom authentication (`auth.path`). Without `auth.path`, they require an API key with access to the
 * deployment's workspace and the permission to run graphs. In both cases, the same rate limits apply as for the
 * server's own routes.
 */
export function createAppRoutes(options: {
  readonly app: HttpApp;
  readonly ownAccess?: CustomAccess;
  readonly http?: HttpSettings;
  readonly authenticator: Authenticator;
  readonly rateLimiter: Services['rateLimiter'];
  readonly workspaceId: string;
  readonly bodyLimit: ApiProfile['bodyLimit'];
}): CustomRoutes {
  const { app, ownAccess, http, authenticator, rateLimiter, workspaceId, bodyLimit } = options;

  async function identify(...[request, reply]: Parameters<CustomRoutes['handle']>): Promise<AgentUser> {
    const renew = async () => {
      const caller = await identifyCaller(request, runAccess, authenticator, { workspaceId });
      if (caller === undefined) throw runlakeError('API_KEY_MISSING');
      return caller;
    };
    const caller = await (ownAccess ? ownAccess.identify(request) : renew());
    await rateLimiter?.take(caller);
    if (ownAccess) {
      const { user } = request.agentAccess ?? {};
      if (user === undefined) throw runlakeError('API_KEY_MISSING');
      return user;
    }
    request.access = request.server.accessWatch.open(request, reply, renew);
    return { identity: caller.userId, display_name: caller.userId, is_authenticated: true, permissions: [] };
  }

  const deps = { app, bodyLimit, identify: http?.enable_custom_route_auth ? identify : undefined };
  return {
    takesPrecedence: (method, path) => app.names(method, path),
    handle: (request, reply) => forwardToApp(request, reply, deps),
  };
}

interface ForwardDeps {
  readonly app: Pick<HttpApp, 'send'>;
  readonly bodyLimit: ApiProfile['bodyLimit'];
  /**
   * Authenticates the caller. Undefined if the routes of the app need no authentication.
   *
   * @throws if the caller cannot be authenticated.
   */
  readonly identify: ((request: FastifyRequest, reply: FastifyReply) => Promise<AgentUser>) | undefined;
}

/**
 * Headers that are not forwarded: hop-by-hop headers (RFC 9110, 7.6.1) and headers that this server handles or sets
 * itself.
 */
const unforwardedHeaders = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade', 'expect', userHeader, 'x-forwarded-for'],
]);

/**
 * Forwards a request to the custom app unchanged, and streams the response of the app to the client. The app sets its
 * own security headers. If `http.cors` is set, this server sets the CORS headers.
 *
 * @throws BODY_TOO_LARGE, APP_UNAVAILABLE, APP_FAILED, APP_TIMEOUT, and the errors of `identify`.
 */
async function forwardToApp(request: FastifyRequest, reply: FastifyReply, deps: ForwardDeps): Promise<void> {
  const user = await deps.identify?.(request, reply);
  const disconnectController = new AbortController();
  const onClose = () => disconnectController.abort();
  reply.raw.once('close', onClose);
  const accessEnded = request.access?.ended;
  accessEnded?.addEventListener('abort', onClose);
  const appResponse = await deps.app.send({
    method: request.method,
    target: request.originalUrl,
    headers: buildForwardedHeaders(request, user),
    body: limitBody(request.raw, deps.bodyLimit),
    signal: disconnectController.signal,
  });
  for (const name of ['x-content-type-options', 'x-frame-options']) reply.removeHeader(name);
  const serverHeaders = reply.getHeaders();
  reply.hijack();
  try {
    await sendResponse(appResponse, serverHeaders as Record<string, string>, reply.raw);
  } catch (err) {
    if (!disconnectController.signal.aborted)
      request.log.warn({ err, requestId: request.id }, 'response of the custom app aborted');
    reply.raw.destroy();
  } finally {
    reply.raw.off('close', onClose);
    accessEnded?.removeEventListener('abort', onClose);
  }
}

async function sendResponse(
  appResponse: AppResponse,
  serverHeaders: Record<string, string>,
  response: ServerResponse,
): Promise<void> {
  const appHeaders = Object.entries(appResponse.headers).filter(([name]) => !unforwardedHeaders.has(name));
  // The server's CORS headers take precedence over those of the app.
  const sentHeaders = appHeaders.filter(([name]) => !(name in serverHeaders) || !name.startsWith('access-control-'));
  const vary = [serverHeaders.vary, appResponse.headers.vary].flat().filter((one) => one !== undefined);
  response.writeHead(appResponse.status, {
    ...serverHeaders,
    ...Object.fromEntries(sentHeaders.filter(([, value]) => value !== undefined)),
    ...(vary.length > 0 && { vary: vary.join(', ') }),
  });
  // Sends the headers immediately, because a streaming response may not send data for a while.
  response.flushHeaders();
  await pipeline(appResponse.body, response);
}

function buildForwardedHeaders(request: FastifyRequest, user: AgentUser | undefined): string[] {
  const { rawHeaders } = request.raw;
  const droppedHeaders = new Set([...unforwardedHeaders, ...splitHeader(request.headers.connection)]);
  const headers = rawHeaders.flatMap((name, index) =>
    index % 2 === 1 || droppedHeaders.has(name.toLowerCase()) ? [] : [name, rawHeaders[index + 1] ?? ''],
  );
  const add = (name: string, value: string | undefined) => {
    if (value !== undefined && request.headers[name] === undefined) headers.push(name, value);
  };
  // Each proxy appends the address of its client. Therefore only the last address is trustworthy.
  const addresses = [request.headers['x-forwarded-for'], request.socket.remoteAddress].filter(Boolean);
  headers.push('x-forwarded-for', addresses.join(', '));
  add('x-forwarded-proto', request.protocol);
  add('x-forwarded-host', request.headers.host);
  add('x-request-id', request.id);
  if (user !== undefined) headers.push(userHeader, encodeUser(user));
  return headers;
}

function splitHeader(header: string | undefined): readonly string[] {
  return (header ?? '').split(',').map((name) => name.trim().toLowerCase());
}

/**
 * Returns the body, or null if the request has none. Limits the size of the body.
 *
 * @throws BODY_TOO_LARGE, either immediately or while the body is being received.
 */
function limitBody(
  raw: IncomingMessage,
  { bytes: limitBytes, setting: limit }: ApiProfile['bodyLimit'],
): Readable | null {
  const { 'content-length': length, 'transfer-encoding': encoding } = raw.headers;
  if (raw.method === 'GET' || raw.method === 'HEAD' || (encoding === undefined && !Number(length))) return null;
  const createTooLargeError = () => runlakeError('BODY_TOO_LARGE', { limitBytes, limit });
  if (Number(length) > limitBytes) throw createTooLargeError();
  let bytes = 0;
  const sizeLimiter = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > limitBytes) done(createTooLargeError());
      else done(null, chunk);
    },
  });
  // If the client aborts its request, the request to the app is also aborted.
  raw.once('aborted', () =>
    sizeLimiter.destroy(runlakeError('BAD_REQUEST', { reason: 'The client aborted while sending the body.' })),
  );
  return raw.pipe(sizeLimiter);
}
