import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { finished } from 'node:stream';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { splitList } from '../../infra/config/setting.ts';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { RateLimiter } from '../../infra/rate-limit/rate-limiter.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { collectProcessMetrics, counter, histogram } from '../../infra/telemetry/metrics.ts';
import { type RequestSpan, startRequestSpan } from '../../infra/telemetry/tracing/spans.ts';
import { type BodyBudget, type BodyShare, getBodyBudget } from '../../pipelines/ingest/body/body-budget.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import { AccessWatch } from './access-watch.ts';
import { type ApiProfile, type CustomRoutes, type MountedRoutes, mainApi } from './api-form.ts';
import { identifyCaller } from './authentication.ts';
import { toCanonicalUrl } from './canonical-url.ts';
import { limitRequestTime, rejectMalformedRequest } from './connection-limits.ts';
import { anyOriginCors, applyCorsHeaders, type CorsPolicy } from './cross-origin.ts';
import { Drain } from './drain.ts';
import { refusalHeader, renderError, retryAfterSeconds, toRunlakeError } from './error-response.ts';
import { registerTimestampFormat } from './formats.ts';
import { parseRequestBody, readJsonBody } from './json-body.ts';
import { describeApi, descriptionSegments } from './openapi.ts';
import type { Operation } from './operation.ts';
import { buildRoutePath, maskParameters, registerOperation, stripQuery } from './register-operation.ts';
import { ResponseMemory } from './response-memory.ts';
import { compileSerializer, compileValidator } from './schema-check.ts';
import { dropOwnCookies } from './session-cookie.ts';
import { takeTicket } from './session-ticket.ts';
import { createRouteNotFoundError, listUnbuiltRoutes, rejectUnservedRoutes } from './unserved-routes.ts';
import { isPageRequest, listFileSegments, serveWebApplication, webPagePath } from './web-application.ts';
import { acceptWebSockets, WebSocketAwareMessage } from './web-sockets.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /**
     * Refuses new requests with 503, waits at most `drainTimeoutMs` for in-flight requests, and closes the server.
     * Resolves with the number of requests that did not finish within this time.
     */
    drain(): Promise<number>;
    /** Whether {@link FastifyInstance.drain} was called. */
    readonly draining: boolean;
    /** Aborted by {@link FastifyInstance.drain}. Streams that do not end by themselves must end at this point. */
    readonly drainStarted: AbortSignal;
    readonly accessWatch: AccessWatch;
    /** Number of requests that are being served, without those that draining does not wait for. */
    readonly inFlightRequests: number;
  }

  interface FastifyRequest {
    /** OpenTelemetry span of this request. */
    span: RequestSpan | undefined;
    /** Aborted when the client disconnects before the response is complete. */
    disconnected: AbortSignal;
    /** Memory of the JSON body until the handler starts. Without a handler, it is released after the response. */
    bodyShare: BodyShare | undefined;
    responseMemory: ResponseMemory;
  }
}

export interface ServerOptions {
  readonly config: Config;
  /** The services that operations receive. */
  readonly services: {
    readonly authenticator: Authenticator;
    /** Limits the rate of requests. Unset: no rate limit. */
    readonly rateLimiter?: Pick<RateLimiter, 'take'> | undefined;
  };
  readonly logger: Logger;
  readonly operations: readonly Operation[];
  /** Options of the API. Default: those of the main API. */
  readonly form?: ApiProfile;
  /** Routes of deployments. */
  readonly mounted?: MountedRoutes | undefined;
  /**
   * Returns the dependencies that startup is waiting for, or undefined when the server accepts requests. Health
   * operations respond during startup.
   */
  readonly getAwaitedDependency?: () => string | undefined;
}

const requestDurations = histogram(
  'runlake_http_request_duration_seconds',
  'Time from the arrival of a request to the end of its response, by operation and status.',
  ['operation', 'status'],
  [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
);

const errorResponses = counter(
  'runlake_http_errors_total',
  'Requests that resulted in an error response, by operation and error code.',
  ['operation', 'code'],
);

/**
 * Headers that forbid browsers to sniff the content type of a response or to embed the response in a page of another
 * origin.
 */
const securityHeaders = { 'x-content-type-options': 'nosniff', 'x-frame-options': 'DENY' };

/** Value of `Retry-After` for the error STARTING. */
const startupRetryAfterSeconds = 2;

const disconnectReason = 'The client disconnected before the response was complete.';

/** Internal path to which requests for `extraRoutes` are rewritten. No operation uses it. */
const customRoutePath = '/own-route';
const customRouteUrls: ReadonlySet<string> = new Set([customRoutePath, '/*']);

/** Maximum size of the request URL. It is larger than any filter needs, and small enough to be logged. */
const maxUrlBytes = 64 * 1024;
/**
 * Maximum number of bytes for headers, in addition to the longest accepted URL. Because of this addition, Node does not
 * reject an overlong URL before the server's own check rejects it.
 */
const extraHeaderBytes = 1024 * 1024;

/**
 * Builds the HTTP server of one API. Call `listen` to start the server and `drain` to end it. Every response has the
 * header `x-request-id`. Every error response is an entry of the error catalogue.
 */
export async function buildServer({
  config,
  services,
  logger,
  operations,
  form = mainApi(config),
  mounted,
  getAwaitedDependency = () => undefined,
}: ServerOptions): Promise<FastifyInstance> {
  registerTimestampFormat();
  collectProcessMetrics();
  const limits = { maxHeaderBytes: maxUrlBytes + extraHeaderBytes, requestTimeoutMs: config.requestTimeoutMs };
  const rootSegments = new Set<string>(descriptionSegments);
  if (mounted) rootSegments.add(mounted.segment);
  if (form.webFolder) for (const segment of listFileSegments(form.webFolder)) rootSegments.add(segment);
  for (const { mount, path } of operations) if (mount === 'root') rootSegments.add(path.split('/')[1] ?? '');
  const anyOriginPaths = new Set(
    operations.flatMap((operation) =>
      operation.openToPages ? [maskParameters(buildRoutePath(operation, operation.path))] : [],
    ),
  );
  const drain = new Drain();
  const accessWatch = new AccessWatch();
  const budget = getBodyBudget(config);

  const server = Fastify({
    loggerInstance: logger as unknown as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => randomUUID(),
    bodyLimit: form.bodyLimit.bytes,
    trustProxy: config.trustedProxies === undefined ? false : splitList(config.trustedProxies),
    // See `connection-limits.ts`.
    requestTimeout: 0,
    return503OnClosing: false,
    forceCloseConnections: true,
    http: {
      IncomingMessage: WebSocketAwareMessage,
      maxHeaderSize: limits.maxHeaderBytes,
      headersTimeout: config.requestTimeoutMs,
      connectionsCheckingInterval: Math.min(5_000, config.requestTimeoutMs),
    },
    routerOptions: {
      ignoreTrailingSlash: true,
      ignoreDuplicateSlashes: true,
      // This limit exceeds any URL that Node accepts, so that only the server's own check of the whole URL rejects it.
      maxParamLength: limits.maxHeaderBytes,
      // The operations parse the query themselves, so that parse errors do not occur inside the router.
      querystringParser: () => ({}),
    },
    rewriteUrl: (raw) => {
      const { method = 'GET', url = '/', headers } = raw;
      if (!form.acceptsSessions) dropOwnCookies(raw as IncomingMessage);
      takeTicket(raw as IncomingMessage, form.tickets);
      const path = stripQuery(url);
      if (form.extraRoutes?.takesPrecedence(method, path)) return customRoutePath;
      if (form.webFolder && isPageRequest(method, path, headers)) return webPagePath;
      return toCanonicalUrl(url, rootSegments);
    },
    frameworkErrors: (error, request, reply) => sendError(error, request, reply),
    clientErrorHandler: (error, socket) => rejectMalformedRequest(error, socket, limits),
  }).withTypeProvider<TypeBoxTypeProvider>();
  limitRequestTime(server.server, limits);

  function sendError(raw: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const error = toRunlakeError(raw, form);
    const operation = request.routeOptions?.config?.operation;
    const line = {
      err: error,
      requestId: request.id,
      operation: operation?.operationId,
      traceId: request.span?.traceId,
    };
    if (error.class === 'terminal') logger.error(line, 'request failed');
    else if (error.class === 'transient') logger.warn(line, 'request failed, client may retry');
    else logger.debug(line, 'request refused');
    request.span?.failed(error.code);
    errorResponses.inc({ operation: operation?.operationId ?? 'none', code: error.code });
    const seconds = retryAfterSeconds(error);
    if (seconds !== undefined) reply.header('retry-after', String(Math.ceil(seconds)));
    if (drain.draining) reply.header('connection', 'close');
    const path = stripQuery(request.originalUrl);
    const requestInfo = { id: request.id, path, contentType: request.headers['content-type'] };
    const { status, contentType, body } = renderError(error, operation?.errorStyle ?? 'detail', requestInfo);
    reply.code(status).headers(securityHeaders).type(contentType).send(body);
  }

  function findCorsSettings(url: string): CorsPolicy | undefined {
    if (anyOriginPaths.has(maskParameters(url))) return anyOriginCors;
    return form.extraRoutes && customRouteUrls.has(url) ? form.extraRoutes.crossOrigin : form.crossOrigin;
  }

  server.decorate('drain', async () => {
    const abortedCount = await drain.start(config.drainTimeoutMs);
    await server.close();
    return abortedCount;
  });
  server.decorate('draining', { getter: () => drain.draining });
  server.decorate('accessWatch', accessWatch);
  server.decorate('inFlightRequests', { getter: () => drain.inFlight });
  server.decorate('drainStarted', { getter: () => drain.started });
  server.decorateRequest('caller', undefined);
  server.decorateRequest('access', undefined);
  server.decorateRequest('span', undefined);
  server.decorateRequest('disconnected', undefined as unknown as AbortSignal);
  server.decorateRequest('bodyShare', undefined);
  server.decorateRequest('responseMemory', undefined as unknown as ResponseMemory);
  server.setValidatorCompiler(compileValidator);
  server.setSerializerCompiler(compileSerializer);
  server.setErrorHandler(sendError);
  server.setNotFoundHandler(async (request) => {
    throw createRouteNotFoundError(request);
  });

  server.addHook('onRequest', async (request, reply) => {
    const startedAtMs = performance.now();
    const { operation, metricName = 'none' } = request.routeOptions.config;
    const isCounted = operation?.servesWhileDraining !== true;
    reply.header('x-request-id', request.id).headers(securityHeaders);
    const shared = findCorsSettings(request.routeOptions.url ?? '');
    const isPreflight = shared !== undefined && applyCorsHeaders(request, reply, shared);
    const what = isCounted ? getAwaitedDependency() : undefined;
    if (what !== undefined || (isCounted && drain.draining)) reply.header(refusalHeader, 'true');
    if (what !== undefined) throw runlakeError('STARTING', { what }, { retryAfterSeconds: startupRetryAfterSeconds });
    if (isCounted) rejectIfUnavailable();
    if (isCounted) drain.enter();
    if (operation && isCounted && !operation.untraced) request.span = startSpan(request, operation);
    const disconnect = new AbortController();
    request.disconnected = disconnect.signal;
    request.responseMemory = new ResponseMemory(budget, reply);
    finished(reply.raw, (error) => {
      if (isCounted) drain.leave();
      request.bodyShare?.close();
      request.responseMemory.close();
      // If there is an error, the client disconnected before the response was complete.
      if (error) disconnect.abort(runlakeError('BAD_REQUEST', { reason: disconnectReason }));
      const status = error ? 'aborted' : reply.statusCode;
      request.span?.end(status, request.caller?.workspaceId);
      requestDurations.observe(
        { operation: operation?.operationId ?? metricName, status: String(status) },
        (performance.now() - startedAtMs) / 1_000,
      );
    });
    if (Buffer.byteLength(request.originalUrl) > maxUrlBytes) {
      throw runlakeError('URL_TOO_LONG', { limitBytes: maxUrlBytes });
    }
    if (isPreflight) return reply.code(204).send();
    // This check runs before the body is read, so that it does not depend on the type and size of the body.
    if (request.is404) throw createRouteNotFoundError(request);
    if (operation === undefined || 'public' in operation.access) return;
    const authenticate = () => identify(request, operation.access);
    // Each command on an open connection counts as a request.
    const renew = async () => {
      const caller = await authenticate();
      request.caller = caller;
      await services.rateLimiter?.take(caller);
      return caller;
    };
    await renew();
    // Custom authentication of graph code is not called again while the response is sent.
    const recheck = form.customAccess && !form.customAccess.rechecks ? async () => rejectIfUnavailable() : authenticate;
    request.access = accessWatch.open(request, reply, renew, recheck);
  });
  server.addHook('onSend', (request, _reply, payload, done) => {
    // If `onRequest` of another plugin refuses the request, it has no memory yet.
    request.responseMemory?.keepOnly(payload);
    done();
  });
  server.addHook('onClose', async () => accessWatch.close());

  function rejectIfUnavailable(): void {
    const unavailable = form.unavailableError?.();
    if (unavailable !== undefined) throw unavailable;
  }

  async function identify(request: FastifyRequest, access: Operation['access']): Promise<Caller> {
    rejectIfUnavailable();
    if (form.customAccess) return form.customAccess.identify(request);
    const caller = await identifyCaller(request, access, services.authenticator, form);
    if (caller === undefined) throw runlakeError('API_KEY_MISSING');
    return caller;
  }

  if (operations.some(({ socket }) => socket !== undefined)) await acceptWebSockets(server);
  registerJsonParser(server, { config, budget }, form);
  if (form.isDescribed !== false) await describeApi(server, form);
  for (const operation of operations)
    if (!operation.rawBody) registerOperation(server, operation, services, form.customAccess);
  await server.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
    for (const operation of operations)
      if (operation.rawBody) registerOperation(scope, operation, services, form.customAccess);
    if (form.extraRoutes) registerCatchAllRoute(scope, form.extraRoutes);
  });
  if (form.webFolder) await serveWebApplication(server, form.webFolder);
  if (mounted) await server.register((scope) => mounted.register(scope));
  rejectUnservedRoutes(server, operations, listUnbuiltRoutes(form.originalRoutes ?? [], operations));
  return server;
}

/**
 * Registers the catch-all route. It handles requests that match no operation, and requests that were rewritten to
 * `customRoutePath`.
 */
function registerCatchAllRoute(scope: FastifyInstance, { handle }: CustomRoutes): void {
  scope.route({
    method: scope.supportedMethods,
    exposeHeadRoute: false,
    url: '/*',
    schema: { hide: true },
    // Without this check, the WebSocket plugin would handle the request instead of the handler.
    preHandler: async ({ headers }) => {
      if (/^websocket$/i.test(headers.upgrade ?? '')) throw runlakeError('WEBSOCKET_NOT_ACCEPTED');
    },
    handler: async (request, reply) => {
      await handle(request, reply);
    },
  });
}

function startSpan(request: FastifyRequest, { operationId }: Operation): RequestSpan | undefined {
  const { method, headers, routeOptions } = request;
  return startRequestSpan({ method, route: routeOptions.url ?? '', operation: operationId, headers });
}

/** Replaces Fastify's body parsers. Accepts only uncompressed JSON. */
function registerJsonParser(
  server: FastifyInstance,
  { config, budget }: { readonly config: Config; readonly budget: BodyBudget },
  { acceptsAnyContentType, bodyLimit }: ApiProfile,
): void {
  // Fastify's own `parseAs` keeps each chunk as an object, which costs 200 bytes for a chunk of one byte.
  const readJson = async (request: FastifyRequest, payload: Readable) => {
    const { headers, routeOptions, caller } = request;
    const { maxBodyBytes: ownLimit, exactFields } = routeOptions.config.operation ?? {};
    const body = await readJsonBody(payload, {
      contentLength: headers['content-length'],
      bodyLimit: ownLimit === undefined ? bodyLimit : { bytes: ownLimit, setting: 'the limit of this operation' },
      budget,
      tenantId: caller?.organizationId ?? '',
      onOpen: (share) => (request.bodyShare = share),
    });
    const encoding = headers['content-encoding'] ?? 'identity';
    if (encoding !== 'identity')
      throw runlakeError('UNSUPPORTED_ENCODING', { encoding: encoding.slice(0, 64), accepted: 'plain' });
    return parseRequestBody(body, config.maxJsonDepth, request.bodyShare, exactFields);
  };
  const createMediaTypeError = ({ headers }: FastifyRequest) =>
    runlakeError('UNSUPPORTED_MEDIA_TYPE', { type: headers['content-type'] ?? '', expected: 'application/json' });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser(/^application\/(?:[\w.-]+\+)?json\b/i, readJson);
  if (!acceptsAnyContentType) {
    server.addContentTypeParser('*', async (request: FastifyRequest) => {
      throw createMediaTypeError(request);
    });
    return;
  }
  server.addContentTypeParser('*', async (request: FastifyRequest, payload: Readable) => {
    // A page of another origin can send such a content type with cookies and without a preflight. Browsers add `Origin`
    // to the requests of such a page.
    if (request.headers.origin !== undefined) throw createMediaTypeError(request);
    return readJson(request, payload).catch((error: unknown) => {
      throw isRunlakeError(error) && error.code === 'INVALID_JSON' ? createMediaTypeError(request) : error;
    });
  });
}
