import type { FastifyRequest } from 'fastify';
import type { Config } from '../../../infra/config/settings.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { collectBody } from '../../../pipelines/ingest/body/collect.ts';

/** Bytes of all bodies that this process holds at this moment. */
let heldBytes = 0;

/**
 * Reads the body of an ingest request whole, decompressed, within the limits, and hands it to `work`. The bytes of all bodies
 * together are counted piece by piece while they arrive, and given back when `work` settles: while it goes on, with pauses,
 * the body stays in memory.
 *
 * @throws OVERLOADED where the bodies together exceed `maxCollectingBytes`, the faults of `collectBody`, and those of `work`.
 */
export async function withBody<Result>(
  request: FastifyRequest,
  config: Config,
  work: (body: Buffer) => Promise<Result>,
): Promise<Result> {
  let ownBytes = 0;
  try {
    const body = await collectBody(request.raw, {
      contentEncoding: request.headers['content-encoding'],
      maxBytes: config.maxBodyBytes,
      timeoutMs: config.requestTimeoutMs,
      limitName: 'RUNLAKE_MAX_BODY_BYTES',
      timeoutName: 'RUNLAKE_REQUEST_TIMEOUT_MS',
      onKept: (bytes) => {
        ownBytes += bytes;
        heldBytes += bytes;
        if (heldBytes <= config.maxCollectingBytes) return;
        throw fault('OVERLOADED', { what: 'RUNLAKE_MAX_COLLECTING_BYTES' }, { retryAfterSeconds: 1 });
      },
    });
    return await work(body);
  } finally {
    heldBytes -= ownBytes;
  }
}

/** @throws UNSUPPORTED_MEDIA_TYPE where the request is not JSON; without a Content-Type it is taken for JSON. */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return;
  throw fault('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}
