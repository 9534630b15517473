import type { FastifyReply, FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';

export interface CorsPolicy {
  readonly origins: '*' | { includes(origin: string): boolean };
  readonly methods: readonly string[];
  /** Request headers that are allowed in addition to the CORS-safelisted headers. `*` allows any header. */
  readonly headers: '*' | readonly string[];
  /** Response headers that pages may read. */
  readonly exposedHeaders: readonly string[];
  /** Whether requests may carry cookies. Must not be true if `origins` is `*`. */
  readonly credentials: boolean;
  /** How long a browser may cache a preflight response. */
  readonly maxAgeSeconds: number;
  /**
   * The settings that the error ORIGIN_NOT_ALLOWED mentions. Unset: the server handles a preflight from an origin that
   * is not allowed like any other OPTIONS request.
   */
  readonly settings?: string;
  /** Refuse every request from another origin, not only preflights. */
  readonly refusesOthers?: true;
}

/** Matches loopback origins. A browser writes the host of an origin in its shortest form. Source: RFC 5735. */
const loopbackPattern = /^https?:\/\/(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/;
export const loopbackOrigins = { includes: (origin: string) => loopbackPattern.test(origin) };

/** Parses a setting: `*`, or a list of origins separated by commas. */
export function parseOrigins(text: string): CorsPolicy['origins'] {
  return text === '*' ? '*' : text.split(',').map((origin) => origin.trim());
}

/** CORS configuration of operations that need no authentication. */
export const anyOriginCors: CorsPolicy = {
  origins: '*',
  methods: ['GET', 'POST'],
  headers: '*',
  exposedHeaders: ['x-request-id'],
  credentials: false,
  maxAgeSeconds: 600,
};

const headerListPattern = /^[\w-]+(?: *, *[\w-]+)*$/;

/**
 * Sets the CORS headers of the response if `origins` includes the origin of `request`. Error responses get the headers,
 * too.
 *
 * @returns true if the request is a preflight; the caller responds with 204 and no body. Source: Fetch standard, "CORS
 *   protocol".
 * @throws ORIGIN_NOT_ALLOWED for a preflight from another origin; with `refusesOthers`, for any request from one.
 */
export function applyCorsHeaders(request: FastifyRequest, reply: FastifyReply, shared: CorsPolicy): boolean {
  const { origin } = request.headers;
  const { origins, headers, settings } = shared;
  const isPreflight = request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined;
  if (origins !== '*') reply.header('vary', 'origin');
  if (origin === undefined) return false;
  if (origins !== '*' && !origins.includes(origin)) {
    if ((isPreflight || shared.refusesOthers) && settings !== undefined)
      throw runlakeError('ORIGIN_NOT_ALLOWED', { origin, settings });
    return false;
  }
  reply.header('access-control-allow-origin', origins === '*' ? '*' : origin);
  reply.header('access-control-expose-headers', shared.exposedHeaders.join(', '));
  if (shared.credentials) reply.header('access-control-allow-credentials', 'true');
  if (!isPreflight) return false;
  reply.header('access-control-allow-methods', shared.methods.join(', '));
  reply.header('access-control-max-age', String(shared.maxAgeSeconds));
  const requestedHeaders = request.headers['access-control-request-headers'];
  if (headers !== '*') reply.header('access-control-allow-headers', headers.join(', '));
  else if (requestedHeaders !== undefined && headerListPattern.test(requestedHeaders))
    reply.header('access-control-allow-headers', requestedHeaders);
  return true;
}
