import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { SharedOrigins } from './cross-origin.ts';
import type { ApiTitle } from './openapi.ts';
import type { Operation } from './operation.ts';

/** How one API differs from another that the same builder makes a server of. */
export interface ApiForm extends ApiTitle {
  /** Largest body, and the setting that says so. */
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
  /** JSON is taken whatever the content type says, except from pages of browsers. Default: only as JSON. */
  readonly takesAnyContentType?: true;
  /** The only workspace whose keys are let in; requests that name no workspace are about this one. Unset: all. */
  readonly workspaceId?: string;
  /** Whether it tells `/docs` and `/openapi.json`. Default: yes. */
  readonly isDescribed?: boolean;
  /** Which pages of other origins may call its operations. Unset: none. */
  readonly crossOrigin?: SharedOrigins;
  /** Who asks, and what they reach, where API keys do not say so. */
  readonly ownAccess?: OwnAccess;
  readonly ownRoutes?: OwnRoutes;
  /** Why every operation but those of health is refused, also on connections that are open. Unset: never. */
  readonly refusal?: () => RunlakeError | undefined;
}

/** Routes that are no operations. */
export interface OwnRoutes {
  /** Which pages of other origins may call them. Unset: the routes answer preflights themselves. */
  readonly crossOrigin?: SharedOrigins | undefined;
  /** Whether they come before an operation of the same route. They get all that no operation has. */
  names(method: string, path: string): boolean;
  /** Its body was not read. */
  handle(request: FastifyRequest, reply: FastifyReply): Promise<void>;
}

/** Access to the operations of an API that are not public, by other rules than API keys. */
export interface OwnAccess {
  /** In place of the look at the API key. */
  identify(request: FastifyRequest): Promise<Caller>;
  /** In place of the handler alone: whether, and with which input, that is called. The input fits the schema. */
  handle(operation: Operation, input: HandledInput, handler: (input: object) => Promise<unknown>): Promise<unknown>;
}

/** What a handler is called with, as far as its rules need to know. */
export interface HandledInput {
  readonly request: FastifyRequest;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}

export function mainApi({ maxJsonBodyBytes }: Config): ApiForm {
  return {
    title: 'Runlake API',
    description:
      'Every path also answers without `/v1` and without `/api/v1`, and with a slash at the end. Times are ISO 8601; without a zone they are UTC.',
    bodyLimit: { bytes: maxJsonBodyBytes, setting: 'RUNLAKE_MAX_JSON_BODY_BYTES' },
  };
}
