import type { FastifyRequest } from 'fastify';
import type { Config } from '../../../infra/config/settings.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { collectBody } from '../../../pipelines/ingest/body/collect.ts';

/** Bytes of all bodies that this process is collecting at this moment. */
let collectingBytes = 0;

/**
 * Reads the body of an ingest request whole, decompressed, within the limits: its own, and that of all bodies together,
 * which are counted piece by piece while they arrive and given back when this settles, however it does.
 *
 * @throws OVERLOADED where the bodies together exceed `maxCollectingBytes`, and the faults of `collectBody`.
 */
export async function readBody(request: FastifyRequest, config: Config): Promise<Buffer> {
  let ownBytes = 0;
  try {
    return await collectBody(request.raw, {
      contentEncoding: request.headers['content-encoding'],
      maxBytes: config.maxBodyBytes,
      timeoutMs: config.requestTimeoutMs,
      limitName: 'RUNLAKE_MAX_BODY_BYTES',
      timeoutName: 'RUNLAKE_REQUEST_TIMEOUT_MS',
      onKept: (bytes) => {
        ownBytes += bytes;
        collectingBytes += bytes;
        if (collectingBytes <= config.maxCollectingBytes) return;
        throw fault('OVERLOADED', { what: 'RUNLAKE_MAX_COLLECTING_BYTES' }, { retryAfterSeconds: 1 });
      },
    });
  } finally {
    collectingBytes -= ownBytes;
  }
}

/** @throws UNSUPPORTED_MEDIA_TYPE where the request is not JSON; without a Content-Type it is taken for JSON. */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return;
  throw fault('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}
