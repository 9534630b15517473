import type { FastifyRequest } from 'fastify';
import type { Config } from '../../../infra/config/settings.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { BodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { collectBody } from '../../../pipelines/ingest/body/collect.ts';
import type { WorkspaceCaller } from '../../../pipelines/tenants/caller.ts';

/** Of each configuration: a process has one. */
const budgets = new WeakMap<Config, BodyBudget>();

/**
 * Reads the body of an ingest request whole, decompressed, within the limits, and hands it to `work`. Its bytes are taken from the
 * budget of the process while they arrive, as the caller's organisation, and given back when `work` settles: while it goes on,
 * with pauses, the body stays in memory.
 *
 * @throws OVERLOADED where the budget has no room for the organisation, the faults of `collectBody`, and those of `work`.
 */
export async function withBody<Result>(
  { request, caller }: { readonly request: FastifyRequest; readonly caller: WorkspaceCaller },
  config: Config,
  work: (body: Buffer) => Promise<Result>,
): Promise<Result> {
  const budget = budgets.get(config) ?? new BodyBudget(config.maxCollectingBytes);
  budgets.set(config, budget);
  const displaced = new AbortController();
  const share = budget.open(caller.organizationId, (error) => displaced.abort(error));
  try {
    const body = await collectBody(request.raw, {
      contentEncoding: request.headers['content-encoding'],
      maxBytes: config.maxBodyBytes,
      timeoutMs: config.requestTimeoutMs,
      limitName: 'RUNLAKE_MAX_BODY_BYTES',
      timeoutName: 'RUNLAKE_REQUEST_TIMEOUT_MS',
      share,
      signal: displaced.signal,
    });
    return await work(body);
  } finally {
    share.close();
  }
}

/** @throws UNSUPPORTED_MEDIA_TYPE where the request is not JSON; without a Content-Type it is taken for JSON. */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return;
  throw fault('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}
