import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { SharedOrigins } from './cross-origin.ts';
import type { ApiTitle } from './openapi.ts';
import type { Operation } from './operation.ts';
import { originalRoutes, type Route } from './unserved-routes.ts';

/** The options in which the APIs of `buildServer` differ. */
export interface ApiProfile extends ApiTitle {
  /** Maximum body size and the setting that configures it. */
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
  /** Accept JSON bodies with any content type, unless a browser sends an `Origin`. Default: only JSON content types. */
  readonly acceptsAnyContentType?: true;
  /**
   * The only workspace whose keys are accepted; it is the default for requests without `X-Tenant-Id`. Unset: all
   * workspaces.
   */
  readonly workspaceId?: string;
  /** Whether the server has `/docs` and `/openapi.json`. Default: true. */
  readonly isDescribed?: boolean;
  /** Routes of the original API. Those that no operation serves get an error that says so. */
  readonly originalRoutes?: readonly Route[];
  /** CORS configuration of the operations. Unset: no cross-origin access. */
  readonly crossOrigin?: SharedOrigins;
  /** Authentication and authorisation in place of API keys. */
  readonly customAccess?: OwnAccess;
  readonly extraRoutes?: OwnRoutes;
  /**
   * Returns the error with which the server refuses every operation except health operations, also on open connections.
   * Undefined or unset: it refuses none.
   */
  readonly unavailableError?: () => RunlakeError | undefined;
}

/** Routes that are not declared as operations. */
export interface OwnRoutes {
  /** CORS configuration of these routes. Unset: `handle` receives the preflights of these routes. */
  readonly crossOrigin?: SharedOrigins | undefined;
  /**
   * Returns true if these routes take precedence over an operation with the same method and path. These routes also get
   * all requests that match no operation.
   */
  names(method: string, path: string): boolean;
  /** Handles the request. At the time of the call, nothing has read the body. */
  handle(request: FastifyRequest, reply: FastifyReply): Promise<void>;
}

/** Replaces API keys for the non-public operations of an API. */
export interface OwnAccess {
  /** Authenticates the request; replaces the look-up of the API key. */
  identify(request: FastifyRequest): Promise<Caller>;
  /**
   * Authorises the call, may change `input`, and runs `handler` with it. The schema of the operation has already
   * validated `input`.
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
    originalRoutes,
    bodyLimit: { bytes: maxJsonBodyBytes, setting: 'the limit of requests without runs or feedback' },
  };
}
