import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { splitList } from '../../infra/config/setting.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { collectProcessMetrics } from '../../infra/telemetry/metrics.ts';
import { getBodyBudget } from '../../pipelines/ingest/body/body-budget.ts';
import { type ApiProfile, type CustomRoutes, type MountedRoutes, mainApi } from './api-form.ts';
import { stripQuery, toCanonicalUrl } from './canonical-url.ts';
import { limitRequestTime, rejectMalformedRequest } from './connection-limits.ts';
import { anyOriginCors, type CorsPolicy } from './cross-origin.ts';
import { Drain } from './drain.ts';
import { registerTimestampFormat } from './formats.ts';
import { describeApi, descriptionSegments } from './openapi.ts';
import { buildRoutePath, maskParameters, type Operation } from './operation.ts';
import { registerOperation } from './register-operation.ts';
import { registerJsonParser } from './request-body.ts';
import { addLifecycleHooks, createErrorSender, type LifecycleOptions, maxUrlBytes } from './request-lifecycle.ts';
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
    /** Number of requests that are being served, without those that draining does not wait for. */
    readonly inFlightRequests: number;
  }
}

export interface ServerOptions {
  readonly config: Config;
  /** The services that operations receive. */
  readonly services: LifecycleOptions['services'];
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

/** Internal path to which requests for `extraRoutes` are rewritten. No operation uses it. */
const customRoutePath = '/own-route';
const customRouteUrls: ReadonlySet<string> = new Set([customRoutePath, '/*']);

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
  const budget = getBodyBudget(config);
  const sendError = createErrorSender({ logger, form, drain });

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
    frameworkErrors: sendError,
    clientErrorHandler: (error, socket) => rejectMalformedRequest(error, socket, limits),
  }).withTypeProvider<TypeBoxTypeProvider>();
  limitRequestTime(server.server, limits);

  function findCorsPolicy(url: string): CorsPolicy | undefined {
    if (anyOriginPaths.has(maskParameters(url))) return anyOriginCors;
    return form.extraRoutes && customRouteUrls.has(url) ? form.extraRoutes.crossOrigin : form.crossOrigin;
  }

  server.decorate('drain', async () => {
    const abortedCount = await drain.start(config.drainTimeoutMs);
    await server.close();
    return abortedCount;
  });
  server.decorate('draining', { getter: () => drain.draining });
  server.decorate('inFlightRequests', { getter: () => drain.inFlight });
  server.decorate('drainStarted', { getter: () => drain.started });
  server.setValidatorCompiler(compileValidator);
  server.setSerializerCompiler(compileSerializer);
  server.setErrorHandler(sendError);
  server.setNotFoundHandler(async (request) => {
    throw createRouteNotFoundError(request);
  });
  addLifecycleHooks(server, { services, form, drain, budget, getAwaitedDependency, findCorsPolicy });

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
