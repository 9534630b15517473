import type { FastifyReply, FastifyRequest } from 'fastify';

export interface SharedOrigins {
  readonly origins: '*' | ReadonlySet<string>;
  /** Headers of answers that pages may read. */
  readonly exposedHeaders: readonly string[];
}

const methods = 'GET, POST, PUT, PATCH, DELETE';
const headerList = /^[\w-]+(?: *, *[\w-]+)*$/;

/**
 * Tells a browser that the page which sends `request` may read the answer, errors included, where its origin is one of those
 * given. Keys go in a header, so cookies are never let through.
 *
 * @returns whether this is the browser's question beforehand, which is answered with 204 and nothing else. Source: Fetch standard,
 * "CORS protocol".
 */
export function shareAcrossOrigins(request: FastifyRequest, reply: FastifyReply, shared: SharedOrigins): boolean {
  const { origin } = request.headers;
  const all = shared.origins === '*';
  if (!all) reply.header('vary', 'origin');
  if (origin === undefined || (shared.origins !== '*' && !shared.origins.has(origin))) return false;
  reply.header('access-control-allow-origin', all ? '*' : origin);
  reply.header('access-control-expose-headers', shared.exposedHeaders.join(', '));
  if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined) return false;
  reply.header('access-control-allow-methods', methods).header('access-control-max-age', '600');
  const asked = request.headers['access-control-request-headers'];
  if (asked !== undefined && headerList.test(asked)) reply.header('access-control-allow-headers', asked);
  return true;
}
