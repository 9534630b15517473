import type { FastifyRequest } from 'fastify';
import type { Config } from '../../../infra/config/settings.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { collectBody } from '../../../pipelines/ingest/body/collect.ts';

/** Reads the body of an ingest request whole, decompressed, within the limits. @throws the faults of `collectBody`. */
export function readBody(request: FastifyRequest, config: Config): Promise<Buffer> {
  return collectBody(request.raw, {
    contentEncoding: request.headers['content-encoding'],
    maxBytes: config.maxBodyBytes,
    timeoutMs: config.requestTimeoutMs,
    limitName: 'RUNLAKE_MAX_BODY_BYTES',
  });
}

/** @throws UNSUPPORTED_MEDIA_TYPE where the request is not JSON; without a Content-Type it is taken for JSON. */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return;
  throw fault('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}
