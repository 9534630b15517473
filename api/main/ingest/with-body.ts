import type { FastifyRequest } from 'fastify';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { BodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { collectBody } from '../../../pipelines/ingest/body/collect.ts';
import type { WorkspaceCaller } from '../../../pipelines/tenants/caller.ts';

/** One budget per configuration, which is one per process. */
const budgets = new WeakMap<Config, BodyBudget>();

/**
 * Reads and decompresses the complete body of an ingest request within the limits and passes it to `work`. The bytes
 * count against the process budget of the caller's organisation from their arrival until `work` settles, because the
 * body stays in memory until then.
 *
 * @throws OVERLOADED if the budget is exhausted for the organisation, the errors of `collectBody`, and those of `work`.
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
      share,
      signal: displaced.signal,
    });
    return await work(body);
  } finally {
    share.close();
  }
}

/** @throws UNSUPPORTED_MEDIA_TYPE if the content type is not JSON. A missing Content-Type counts as JSON. */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return;
  throw runlakeError('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}
