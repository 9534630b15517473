import type { FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { parseJsonBody } from '../server/json-body.ts';
import { compileCheck } from '../server/schema-check.ts';
import type { Services } from '../server/services.ts';
import { requireJson, withBody } from './ingest.ts';

/** Errors of {@link LargeJson.read}, for the operations that use it. */
export const largeJsonErrors = ['INVALID_REQUEST', 'INVALID_JSON', 'INVALID_UTF8', 'TOO_DEEP'] as const;

interface LargeJson<S extends TSchema> {
  /**
   * Reads and validates the body, and passes the parsed value and the original bytes to `work`. Members can be stored
   * unchanged from the bytes.
   */
  read<Result>(
    sent: { readonly request: FastifyRequest; readonly caller: WorkspaceCaller },
    services: Services,
    work: (value: Static<S>, bytes: Buffer) => Promise<Result>,
  ): Promise<Result>;
}

/** A JSON body that may be larger than the limit of other operations. @throws {@link largeJsonErrors} */
export function defineLargeJson<S extends TSchema>(schema: S, maxBytes: number): LargeJson<S> {
  const check = compileCheck({ schema, method: 'POST', url: '', httpPart: 'body' });
  return {
    read: ({ request, caller }, { config }, work) => {
      requireJson(request);
      return withBody({ request, caller }, config, async (bytes) => {
        if (bytes.length > maxBytes) {
          throw runlakeError('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: 'the limit of this operation' });
        }
        const checked = check(parseJsonBody(bytes, config.maxJsonDepth)) as { value?: unknown; error?: Error };
        if (checked.error) throw checked.error;
        return work(checked.value as Static<S>, bytes);
      });
    },
  };
}
