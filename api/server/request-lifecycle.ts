/**
 * What the server does with each request besides its handler.
 *
 *   1. Set the headers of every response. Respond to preflights.
 *   2. Refuse the request while the server starts, is unavailable or drains.
 *   3. Begin what is measured and held for the request, and end it when the response is complete or the client has
 *      disconnected.
 *   4. Refuse URLs that are too long, and routes that do not exist, before the body is read.
 *   5. Authenticate the caller.
 */
import { finished } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { getTenantContext } from '../../infra/fairness/tenant-context.ts';
import type { RateLimiter } from '../../infra/rate-limit/rate-limiter.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { counter, histogram } from '../../infra/telemetry/metrics.ts';
import { type RequestSpan, startRequestSpan } from '../../infra/telemetry/tracing/spans.ts';
import type { BodyBudget, BodyShare } from '../../pipelines/ingest/body/body-budget.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import { AccessWatch } from './access-watch.ts';
import type { ApiProfile } from './api-form.ts';
import { identifyCaller } from './authentication.ts';
import { stripQuery } from './canonical-url.ts';
import { applyCorsHeaders, type CorsPolicy } from './cross-origin.ts';
import type { Drain } from './drain.ts';
import { refusalHeader, renderError, retryAfterSeconds, toRunlakeError } from './error-response.ts';
import type { Operation } from './operation.ts';
import { createRouteNotFoundError } from './unserved-routes.ts';

declare module 'fastify' {
  interface FastifyInstance {
    readonly accessWatch: AccessWatch;
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

/**
 * Memory of the large pages that one request reads, until its response is complete. While the client receives the
 * response, only the text that is sent counts, and the connection is closed if another organisation needs the memory.
 */
class ResponseMemory {
  readonly #budget: Pick<BodyBudget, 'open'>;
  readonly #reply: FastifyReply;
  #share: BodyShare | undefined;
  #isSending = false;
  #isClosed = false;

  constructor(budget: Pick<BodyBudget, 'open'>, reply: FastifyReply) {
    this.#budget = budget;
    this.#reply = reply;
  }

  /**
   * Reserves memory for a page on behalf of the current organisation. Does nothing if the response is complete.
   *
   * @throws OVERLOADED
   */
  reserve(heapBytes: number, bufferBytes?: number): void {
    if (this.#isClosed) return;
    if (this.#share === undefined) {
      this.#share = this.#budget.open(getTenantContext()?.organizationId ?? '', () => this.#reply.raw.destroy());
      this.#share.waitsForClient = this.#isSending;
    }
    this.#share.takePage(heapBytes, bufferBytes);
  }

  /**
   * Releases the memory of the pages except the text that is sent. Of a string, the socket has an encoded copy; a stream may
   * read more pages.
   */
  keepOnly(payload: unknown): void {
    this.#isSending = true;
    if (this.#share === undefined) return;
    if (typeof payload === 'string' || Buffer.isBuffer(payload)) {
      const sentBytes = typeof payload === 'string' ? 2 * payload.length : payload.length;
      this.#share.release(Math.max(0, this.#share.bytes - sentBytes));
    }
    this.#share.waitsForClient = true;
  }

  close(): void {
    this.#isClosed = true;
    this.#share?.close();
  }
}

export interface LifecycleOptions {
  readonly services: {
    readonly authenticator: Authenticator;
    /** Limits the rate of requests. Unset: no rate limit. */
    readonly rateLimiter?: Pick<RateLimiter, 'take'> | undefined;
  };
  readonly form: ApiProfile;
  readonly drain: Drain;
  readonly budget: BodyBudget;
  /** Returns the dependencies that startup is waiting for, or undefined when the server accepts requests. */
  readonly getAwaitedDependency: () => string | undefined;
  /** Returns the CORS configuration of a route. */
  readonly findCorsPolicy: (routeUrl: string) => CorsPolicy | undefined;
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

/** Maximum size of the request URL. It is larger than any filter needs, and small enough to be logged. */
export const maxUrlBytes = 64 * 1024;

export function addLifecycleHooks(
  server: FastifyInstance,
  { services, form, drain, budget, getAwaitedDependency, findCorsPolicy }: LifecycleOptions,
): void {
  const accessWatch = new AccessWatch();
  server.decorate('accessWatch', accessWatch);
  server.decorateRequest('caller', undefined);
  server.decorateRequest('access', undefined);
  server.decorateRequest('span', undefined);
  server.decorateRequest('disconnected', undefined as unknown as AbortSignal);
  server.decorateRequest('bodyShare', undefined);
  server.decorateRequest('responseMemory', undefined as unknown as ResponseMemory);

  server.addHook('onRequest', async (request, reply) => {
    const startedAtMs = performance.now();
    const { operation } = request.routeOptions.config;
    const isCounted = operation?.servesWhileDraining !== true;
    reply.header('x-request-id', request.id).headers(securityHeaders);
    const cors = findCorsPolicy(request.routeOptions.url ?? '');
    const isPreflight = cors !== undefined && applyCorsHeaders(request, reply, cors);
    if (isCounted) admit(reply);
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
      observeEnd(request, error ? 'aborted' : reply.statusCode, startedAtMs);
    });
    if (Buffer.byteLength(request.originalUrl) > maxUrlBytes) {
      throw runlakeError('URL_TOO_LONG', { limitBytes: maxUrlBytes });
    }
    if (isPreflight) return reply.code(204).send();
    // This check runs before the body is read, so that it does not depend on the type and size of the body.
    if (request.is404) throw createRouteNotFoundError(request);
    if (operation !== undefined && !('public' in operation.access)) await openAccess(request, reply, operation);
  });
  server.addHook('onSend', (request, _reply, payload, done) => {
    // If `onRequest` of another plugin refuses the request, it has no memory yet.
    request.responseMemory?.keepOnly(payload);
    done();
  });
  server.addHook('onClose', async () => accessWatch.close());

  /** Counts the request for {@link Drain}. @throws STARTING; DRAINING; the error of an unavailable API */
  function admit(reply: FastifyReply): void {
    const what = getAwaitedDependency();
    if (what !== undefined || drain.draining) reply.header(refusalHeader, 'true');
    if (what !== undefined) throw runlakeError('STARTING', { what }, { retryAfterSeconds: startupRetryAfterSeconds });
    rejectIfUnavailable();
    drain.enter();
  }

  function rejectIfUnavailable(): void {
    const unavailable = form.unavailableError?.();
    if (unavailable !== undefined) throw unavailable;
  }

  /** Authenticates the caller, and opens its access, which lasts until the response is finished. */
  async function openAccess(request: FastifyRequest, reply: FastifyReply, { access }: Operation): Promise<void> {
    const authenticate = () => identify(request, access);
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
  }

  async function identify(request: FastifyRequest, access: Operation['access']): Promise<Caller> {
    rejectIfUnavailable();
    if (form.customAccess) return form.customAccess.identify(request);
    const caller = await identifyCaller(request, access, services.authenticator, form);
    if (caller === undefined) throw runlakeError('API_KEY_MISSING');
    return caller;
  }
}

function startSpan(request: FastifyRequest, { operationId }: Operation): RequestSpan | undefined {
  const { method, headers, routeOptions } = request;
  return startRequestSpan({ method, route: routeOptions.url ?? '', operation: operationId, headers });
}

function observeEnd(request: FastifyRequest, status: number | 'aborted', startedAtMs: number): void {
  const { operation, metricName = 'none' } = request.routeOptions.config;
  request.span?.end(status, request.caller?.workspaceId);
  requestDurations.observe(
    { operation: operation?.operationId ?? metricName, status: String(status) },
    (performance.now() - startedAtMs) / 1_000,
  );
}

/** Returns the function that logs an error of a request and sends its response. */
export function createErrorSender({
  logger,
  form,
  drain,
}: Pick<LifecycleOptions, 'form' | 'drain'> & { readonly logger: Logger }) {
  return (raw: unknown, request: FastifyRequest, reply: FastifyReply): void => {
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
  };
}
