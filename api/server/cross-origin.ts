import type { FastifyReply, FastifyRequest } from 'fastify';

export interface SharedOrigins {
  readonly origins: '*' | { includes(origin: string): boolean };
  readonly methods: readonly string[];
  /** That pages may send beside what every page may. `*`: any. */
  readonly headers: '*' | readonly string[];
  /** Headers of answers that pages may read. */
  readonly exposedHeaders: readonly string[];
  /** Whether cookies come along; not with `*` for origins. */
  readonly credentials: boolean;
  /** How long a browser may keep the answer to its question beforehand. */
  readonly maxAgeSeconds: number;
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
 * Tells a browser that the page which sends `request` may read the answer, errors included, where its origin is one of those
 * given.
 *
 * @returns whether this is the browser's question beforehand, which is answered with 204 and nothing else. Source: Fetch standard,
 * "CORS protocol".
 */
export function shareAcrossOrigins(request: FastifyRequest, reply: FastifyReply, shared: SharedOrigins): boolean {
  const { origin } = request.headers;
  const { origins, headers } = shared;
  if (origins !== '*') reply.header('vary', 'origin');
  if (origin === undefined || (origins !== '*' && !origins.includes(origin))) return false;
  reply.header('access-control-allow-origin', origins === '*' ? '*' : origin);
  reply.header('access-control-expose-headers', shared.exposedHeaders.join(', '));
  if (shared.credentials) reply.header('access-control-allow-credentials', 'true');
  if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined) return false;
  reply.header('access-control-allow-methods', shared.methods.join(', '));
  reply.header('access-control-max-age', String(shared.maxAgeSeconds));
  const asked = request.headers['access-control-request-headers'];
  if (headers !== '*') reply.header('access-control-allow-headers', headers.join(', '));
  else if (asked !== undefined && headerList.test(asked)) reply.header('access-control-allow-headers', asked);
  return true;
}
