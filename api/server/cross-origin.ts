import type { FastifyReply, FastifyRequest } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';

export interface SharedOrigins {
  readonly origins: '*' | { includes(origin: string): boolean };
  readonly methods: readonly string[];
  /** Allowed request headers beyond the CORS-safelisted ones. `*`: any. */
  readonly headers: '*' | readonly string[];
  /** Response headers that pages may read. */
  readonly exposedHeaders: readonly string[];
  /** Whether requests may carry cookies. Must not be combined with `*` as `origins`. */
  readonly credentials: boolean;
  /** How long a browser may cache a preflight response. */
  readonly maxAgeSeconds: number;
  /**
   * The settings that ORIGIN_NOT_ALLOWED names. Unset: the server treats a preflight from another origin like any other
   * OPTIONS request.
   */
  readonly settings?: string;
}

/** CORS configuration of operations that need no authentication. */
export const everyOrigin: SharedOrigins = {
  origins: '*',
  methods: ['GET', 'POST'],
  headers: '*',
  exposedHeaders: ['x-request-id'],
  credentials: false,
  maxAgeSeconds: 600,
};

const headerListPattern = /^[\w-]+(?: *, *[\w-]+)*$/;

/**
 * Sets the CORS headers of the response, also of error responses, if `origins` includes the origin of `request`.
 *
 * @returns true if the request is a preflight; the caller responds with 204 and no body. Source: Fetch standard, "CORS
 *   protocol".
 * @throws ORIGIN_NOT_ALLOWED for a preflight from another origin.
 */
export function shareAcrossOrigins(request: FastifyRequest, reply: FastifyReply, shared: SharedOrigins): boolean {
  const { origin } = request.headers;
  const { origins, headers, settings } = shared;
  const isPreflight = request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined;
  if (origins !== '*') reply.header('vary', 'origin');
  if (origin === undefined) return false;
  if (origins !== '*' && !origins.includes(origin)) {
    if (isPreflight && settings !== undefined) throw runlakeError('ORIGIN_NOT_ALLOWED', { origin, settings });
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
