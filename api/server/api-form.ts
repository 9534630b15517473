import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { SharedOrigins } from './cross-origin.ts';
import type { ApiTitle } from './openapi.ts';
import type { Operation } from './operation.ts';

/** What differs between the APIs that `buildServer` serves. */
export interface ApiProfile extends ApiTitle {
  /** Maximum body size and the setting that configures it. */
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
  /** Accept JSON bodies with any content type, unless a browser sends an `Origin`. Default: only JSON content types. */
  readonly acceptsAnyContentType?: true;
  /**
   * The only workspace whose keys are accepted; it is the default for requests without `X-Tenant-Id`. Unset: all workspaces.
   */
  readonly workspaceId?: string;
  /** Whether the server has `/docs` and `/openapi.json`. Default: true. */
  readonly isDescribed?: boolean;
  /** CORS configuration of the operations. Unset: no cross-origin access. */
  readonly crossOrigin?: SharedOrigins;
  /** Authentication and authorisation in place of API keys. */
  readonly customAccess?: OwnAccess;
  readonly extraRoutes?: OwnRoutes;
  /** The error with which every operation except health is refused, also on open connections. Unset: never. */
  readonly refusal?: () => RunlakeError | undefined;
}

/** Routes that are not declared as operations. */
export interface OwnRoutes {
  /** CORS configuration of these routes. Unset: the routes answer preflights themselves. */
  readonly crossOrigin?: SharedOrigins | undefined;
  /**
   * Returns true if these routes take precedence over an operation of the same route. Requests that match no operation
   * always go to them.
   */
  names(method: string, path: string): boolean;
  /** Handles the request. The body is still unread. */
  handle(request: FastifyRequest, reply: FastifyReply): Promise<void>;
}

/** Replaces API keys for the non-public operations of an API. */
export interface OwnAccess {
  /** Authenticates the request; replaces the look-up of the API key. */
  identify(request: FastifyRequest): Promise<Caller>;
  /**
   * Authorises the call and runs `handler` with `input`, which this may change. The input is already validated against
   * the schema.
   */
  handle(operation: Operation, input: HandledInput, handler: (input: object) => Promise<unknown>): Promise<unknown>;
}

/** The part of a handler's input that authorisation rules read. */
export interface HandledInput {
  readonly request: FastifyRequest;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}

export function mainApi({ maxJsonBodyBytes }: Config): ApiProfile {
  return {
    title: 'Runlake API',
    description:
      'Every path also works without `/v1`, without `/api/v1`, and with a trailing slash. Times are ISO 8601; UTC if they have no zone.',
    bodyLimit: { bytes: maxJsonBodyBytes, setting: 'the limit of requests without runs or feedback' },
  };
}
