import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { HttpApp } from '../../pipelines/agents/app/http-app.ts';
import {
  type CorsSettings,
  compileOriginPattern,
  type HttpSettings,
} from '../../pipelines/agents/graphs/http-settings.ts';
import type { DeploymentWatch } from '../../pipelines/agents/open-deployment.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { ApiProfile, CustomAccess } from '../server/api-form.ts';
import { type CorsPolicy, loopbackOrigins, parseOrigins } from '../server/cross-origin.ts';
import type { Services } from '../server/services.ts';
import type { TicketReader } from '../server/session-ticket.ts';
import { createAppRoutes } from './app-routes.ts';

/** The parts of the agent server that depend on the langgraph.json, and their dependencies. */
export interface AgentApiOptions {
  readonly ownAccess?: CustomAccess;
  readonly http?: HttpSettings;
  readonly app?: HttpApp;
  readonly watch?: Pick<DeploymentWatch, 'isDeleted'>;
  /** Unset: only keys are accepted. */
  readonly tickets?: TicketReader;
  /** Authenticates API keys if the routes of the custom app require them. */
  readonly authenticator: Authenticator;
  readonly rateLimiter: Services['rateLimiter'];
}

/**
 * Returns the API profile of the agent server for {@link buildServer}. The profile depends on the body limit, the
 * workspace of the deployment, and `http` in the langgraph.json.
 */
export function buildAgentApi(config: Config, workspaceId: string, parts?: AgentApiOptions): ApiProfile {
  const { ownAccess, app, watch, tickets, http = {} } = parts ?? {};
  const bodyLimit = { bytes: config.agentsMaxBodyBytes, setting: 'RUNLAKE_AGENTS_MAX_BODY_BYTES' };
  const { agentsCorsOrigins } = config;
  const configuredOrigins =
    agentsCorsOrigins === undefined ? readOrigins(http.cors ?? {}) : parseOrigins(agentsCorsOrigins);
  const crossOrigin = buildCorsPolicy(configuredOrigins ?? loopbackOrigins, http.cors);
  // The app handles preflights for its own routes, unless the operator or the langgraph.json sets allowed origins.
  const appCrossOrigin = configuredOrigins && crossOrigin;
  return {
    title: 'Runlake agent server',
    description:
      'Assistants, threads, runs, crons and store items. The id of a graph is accepted wherever an assistant id is. Times are ISO 8601 in UTC.',
    bodyLimit,
    acceptsAnyContentType: true,
    workspaceId,
    ...(http.disable_meta && { isDescribed: false }),
    ...(ownAccess && { customAccess: ownAccess }),
    ...(tickets && { tickets }),
    ...(parts &&
      app && {
        extraRoutes: { ...createAppRoutes({ ...parts, app, workspaceId, bodyLimit }), crossOrigin: appCrossOrigin },
      }),
    crossOrigin,
    ...(watch && { unavailableError: () => (watch.isDeleted ? runlakeError('DEPLOYMENT_DELETED') : undefined) }),
  };
}

const allMethods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** Response headers that are always exposed, because clients of the agent server read them. */
const exposedHeaders = [
  ...['content-location', 'location', 'x-pagination-total', 'x-pagination-next', 'x-request-id'],
  'x-ignored-fields',
];
/** Maximum length of an origin that is compared with a pattern. Browsers do not send longer origins. */
const maxOriginLength = 300;

/**
 * Returns the CORS configuration of the agent server. The allowed origins are those of the operator if set, otherwise the
 * origins in `http.cors` of the langgraph.json, otherwise loopback origins, which development servers use.
 */
function buildCorsPolicy(origins: CorsPolicy['origins'], cors: CorsSettings | undefined | null): CorsPolicy {
  const { allow_methods: allowed = ['*'], allow_headers: headers = ['*'], expose_headers: exposed = [] } = cors ?? {};
  return {
    origins,
    methods: allowed.includes('*') ? allMethods : allowed.map((method) => method.toUpperCase()),
    headers: headers.includes('*') ? '*' : headers,
    exposedHeaders: [...new Set([...exposedHeaders, ...exposed.map((name) => name.toLowerCase())])],
    // Browsers reject credentials in combination with a wildcard origin.
    credentials: (cors?.allow_credentials ?? false) && origins !== '*',
    maxAgeSeconds: cors?.max_age ?? 600,
    settings: 'RUNLAKE_AGENTS_CORS_ORIGINS, or to http.cors.allow_origins of the langgraph.json',
  };
}

function readOrigins({
  allow_origins: list = [],
  allow_origin_regex: regex,
}: CorsSettings): CorsPolicy['origins'] | undefined {
  if (list.includes('*')) return '*';
  if (!regex) return list.length === 0 ? undefined : list;
  const matches = compileOriginPattern(regex);
  return {
    includes: (origin: string) => list.includes(origin) || (origin.length <= maxOriginLength && matches(origin)),
  };
}
