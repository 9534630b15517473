import type { FastifyReply, FastifyRequest } from 'fastify';
import { fault } from '../../infra/errors/runlake-error.ts';

export interface SharedOrigins {
  readonly origins: '*' | { includes(origin: string): boolean };
  readonly methods: readonly string[];
  /** That pages may send beside what every page may. `*`: any. */
  readonly headers: '*' | readonly string[];
  /** Headers of answers that pages may read. */
  readonly exposedHeaders: readonly string[];
  /** Whether cookies come along; not with `*` for origins. */
  readonly credentials: boolean;
  /** How long a browser may keep the answer to a preflight. */
  readonly maxAgeSeconds: number;
  /** What a refused preflight tells the operator to change. Unset: it is answered like any other OPTIONS request. */
  readonly settings?: string;
}

/** For what anybody may call. */
export const everyOrigin: SharedOrigins = {
  origins: '*',
  methods: ['GET', 'POST'],
  headers: '*',
  exposedHeaders: ['x-request-id'],
  credentials: false,
  maxAgeSeconds: 600,
};

const headerList = /^[\w-]+(?: *, *[\w-]+)*$/;

/**
 * Sets the CORS headers of the answer, errors included, if `origins` has the origin of `request`.
 *
 * @returns whether the request is a preflight, which is answered with 204 and no body. Source: Fetch standard, "CORS protocol".
 * @throws ORIGIN_NOT_ALLOWED for a preflight of another origin.
 */
export function shareAcrossOrigins(request: FastifyRequest, reply: FastifyReply, shared: SharedOrigins): boolean {
  const { origin } = request.headers;
  const { origins, headers, settings } = shared;
  const isPreflight = request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined;
  if (origins !== '*') reply.header('vary', 'origin');
  if (origin === undefined) return false;
  if (origins !== '*' && !origins.includes(origin)) {
    if (isPreflight && settings !== undefined) throw fault('ORIGIN_NOT_ALLOWED', { origin, settings });
    return false;
  }
  reply.header('access-control-allow-origin', origins === '*' ? '*' : origin);
  reply.header('access-control-expose-headers', shared.exposedHeaders.join(', '));
  if (shared.credentials) reply.header('access-control-allow-credentials', 'true');
  if (!isPreflight) return false;
  reply.header('access-control-allow-methods', shared.methods.join(', '));
  reply.header('access-control-max-age', String(shared.maxAgeSeconds));
  const asked = request.headers['access-control-request-headers'];
  if (headers !== '*') reply.header('access-control-allow-headers', headers.join(', '));
  else if (asked !== undefined && headerList.test(asked)) reply.header('access-control-allow-headers', asked);
  return true;
}
