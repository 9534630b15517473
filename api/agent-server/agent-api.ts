import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { HttpApp } from '../../pipelines/agents/app/http-app.ts';
import type { HttpSettings } from '../../pipelines/agents/graphs/http-settings.ts';
import type { DeploymentWatch } from '../../pipelines/agents/watch-deployment.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { ApiForm, OwnAccess } from '../server/api-form.ts';
import { appRoutes } from './app/app-routes.ts';
import { setsOrigins, sharedOrigins } from './shared-origins.ts';

/** The settings of a langgraph.json that change the agent server. */
export interface AgentApiParts {
  readonly ownAccess?: OwnAccess;
  readonly http?: HttpSettings;
  readonly app?: HttpApp;
  readonly watch?: Pick<DeploymentWatch, 'isDeleted'>;
  /** Authenticates API keys, for an app whose routes require them. */
  readonly authenticator: Authenticator;
}

/**
 * Returns the agent server's API for {@link buildServer}: body limit, workspace of the deployment, and `http` of its
 * langgraph.json.
 */
export function agentApi(config: Config, workspaceId: string, parts?: AgentApiParts): ApiForm {
  const { ownAccess, app, watch, http = {} } = parts ?? {};
  const bodyLimit = { bytes: config.agentsMaxBodyBytes, setting: 'RUNLAKE_AGENTS_MAX_BODY_BYTES' };
  const crossOrigin = sharedOrigins(config.agentsCorsOrigins, http.cors);
  // An app handles preflights of its own routes, unless allowed origins are configured.
  const ofApp = setsOrigins(config.agentsCorsOrigins, http.cors) ? crossOrigin : undefined;
  return {
    title: 'Runlake agent server',
    description:
      'Assistants, threads, runs, crons and store items. The id of a graph is accepted wherever an assistant id is. Times are ISO 8601 in UTC.',
    bodyLimit,
    takesAnyContentType: true,
    workspaceId,
    ...(http.disable_meta && { isDescribed: false }),
    ...(ownAccess && { ownAccess }),
    ...(parts && app && { ownRoutes: { ...appRoutes({ ...parts, app, workspaceId, bodyLimit }), crossOrigin: ofApp } }),
    crossOrigin,
    ...(watch && { refusal: () => (watch.isDeleted ? runlakeError('DEPLOYMENT_DELETED') : undefined) }),
  };
}
