/** Reads the bodies of operations with `rawBody`, which Fastify does not parse. */
import type { FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type BodyMemory, getBodyBudget } from '../../pipelines/ingest/body/body-budget.ts';
import { collectBody } from '../../pipelines/ingest/body/collect.ts';
import { readWithNonFinite } from '../../pipelines/ingest/json/non-finite.ts';
import type { WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { parseJsonBody } from '../server/json-body.ts';
import { compileValidator } from '../server/schema-check.ts';
import type { Services } from '../server/services.ts';

/**
 * Reads and decompresses the complete body of a request within the limits, and passes it to `work`. The bytes count
 * against the process budget of the caller's organisation from the time they arrive until `work` settles, because the
 * body stays in memory until then. `work` reserves memory before it uses much more than that of the body.
 *
 * @throws OVERLOADED if the organisation has exhausted the budget; the errors of `collectBody` and of `work`.
 */
export async function withBody<Result>(
  { request, caller }: { readonly request: FastifyRequest; readonly caller: WorkspaceCaller },
  config: Config,
  work: (body: Buffer, memory: BodyMemory) => Promise<Result>,
): Promise<Result> {
  const evicted = new AbortController();
  const share = getBodyBudget(config).open(caller.organizationId, (error) => evicted.abort(error));
  try {
    const body = await collectBody(request.raw, {
      contentEncoding: request.headers['content-encoding'],
      maxBytes: config.maxBodyBytes,
      timeoutMs: config.requestTimeoutMs,
      limitName: 'RUNLAKE_MAX_BODY_BYTES',
      share,
      signal: evicted.signal,
    });
    return await work(body, share);
  } finally {
    share.close();
  }
}

/**
 * Checks that the content type is JSON. A missing Content-Type is accepted.
 *
 * @throws UNSUPPORTED_MEDIA_TYPE if the content type is not JSON.
 */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return;
  throw runlakeError('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}

/** Errors of {@link LargeJson.read}, for the operations that use it. */
export const largeJsonErrors = ['INVALID_REQUEST', 'INVALID_JSON', 'INVALID_UTF8', 'TOO_DEEP'] as const;

interface LargeJson<S extends TSchema> {
  /**
   * Reads and validates the body. Passes the parsed value and the original bytes to `work`. `work` can store members
   * unchanged by copying them from the bytes.
   */
  read<Result>(
    sent: { readonly request: FastifyRequest; readonly caller: WorkspaceCaller },
    services: Services,
    work: (value: Static<S>, bytes: Buffer) => Promise<Result>,
  ): Promise<Result>;
}

/**
 * Defines a JSON body that may be larger than the limit of other operations.
 *
 * @throws {@link largeJsonErrors}
 */
export function defineLargeJson<S extends TSchema>(schema: S, maxBytes: number): LargeJson<S> {
  const check = compileValidator({ schema, method: 'POST', url: '', httpPart: 'body' });
  return {
    read: ({ request, caller }, { config }, work) => {
      requireJson(request);
      return withBody({ request, caller }, config, async (bytes) => {
        if (bytes.length > maxBytes) {
          throw runlakeError('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: 'the limit of this operation' });
        }
        const [parsed, valid] = readWithNonFinite(bytes, (text) => [parseJsonBody(text, config.maxJsonDepth), text]);
        const checkResult = check(parsed) as { value?: unknown; error?: Error };
        if (checkResult.error) throw checkResult.error;
        return work(checkResult.value as Static<S>, valid);
      });
    },
  };
}
