import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { CorsPolicy } from './cross-origin.ts';
import type { ApiTitle } from './openapi.ts';
import type { Operation } from './operation.ts';
import type { TicketReader } from './session-ticket.ts';
import { originalRoutes, type Route } from './unserved-routes.ts';
import { builtWebFolder } from './web-application.ts';

/** The options that differ between the APIs that `buildServer` creates. */
export interface ApiProfile extends ApiTitle {
  /** Maximum size of a body, and the name of the setting that configures it. */
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
  /**
   * Whether JSON bodies are accepted with any content type, except in requests with an `Origin` header, which browsers
   * send. Default: only JSON content types.
   */
  readonly acceptsAnyContentType?: true;
  /**
   * The only workspace whose keys are accepted. It is the default for requests without `X-Tenant-Id`. Unset: keys of
   * all workspaces are accepted.
   */
  readonly workspaceId?: string;
  /** Verifies tickets of the proxy, which it accepts instead of keys. Unset: tickets are ignored. */
  readonly tickets?: TicketReader;
  /** Folder of the built web application, which the server serves at `/`. Unset: there is no web application. */
  readonly webFolder?: URL;
  /** Whether the server serves `/docs` and `/openapi.json`. Default: true. */
  readonly isDescribed?: boolean;
  /**
   * Routes of the original API. If no operation serves a route, requests to it get an error that says that it is not
   * supported.
   */
  readonly originalRoutes?: readonly Route[];
  /** CORS configuration of the operations. Unset: no cross-origin access. */
  readonly crossOrigin?: CorsPolicy;
  /** Authentication and authorisation that replace API keys. */
  readonly customAccess?: CustomAccess;
  readonly extraRoutes?: CustomRoutes;
  /**
   * Returns the error with which the server refuses all operations except health operations, even on open connections.
   * If the function is unset or returns undefined, no operation is refused.
   */
  readonly unavailableError?: () => RunlakeError | undefined;
}

/** Routes that are not declared as operations. */
export interface CustomRoutes {
  /** CORS configuration of these routes. Unset: `handle` receives the preflight requests for these routes. */
  readonly crossOrigin?: CorsPolicy | undefined;
  /**
   * Returns true if these routes take precedence over an operation with the same method and path. Requests that match
   * no operation are always handled by these routes.
   */
  takesPrecedence(method: string, path: string): boolean;
  /** Handles the request. The body has not been read when this method is called. */
  handle(request: FastifyRequest, reply: FastifyReply): Promise<void>;
}

/**
 * Routes below a path of their own that are not operations. Requests to them are counted and drained as others, but no
 * prefix, parser, body limit or authentication applies to them.
 */
export interface MountedRoutes {
  /** First segment of the paths. */
  readonly segment: string;
  register(scope: FastifyInstance): Promise<void>;
}

/** Replaces API keys for all operations of an API that are not public. */
export interface CustomAccess {
  /** Whether {@link CustomAccess.identify} is called again while a response is sent, as for API keys. */
  readonly rechecks?: true;
  /** Authenticates the request; replaces the look-up of the API key. */
  identify(request: FastifyRequest): Promise<Caller>;
  /**
   * Authorises the call and runs `handler` with `input`, which it may change. `input` has already been validated
   * against the schema of the operation.
   */
  handle(
    operation: Operation,
    input: AuthorisationInput,
    handler: (input: object) => Promise<unknown>,
  ): Promise<unknown>;
}

/** The fields of a handler's input that authorisation rules read. */
export interface AuthorisationInput {
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
    acceptsSessions: true,
    webFolder: builtWebFolder,
    bodyLimit: { bytes: maxJsonBodyBytes, setting: 'the limit of requests without runs or feedback' },
  };
}
