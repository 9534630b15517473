import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { HttpApp } from '../../../pipelines/agents/app/http-app.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { HttpSettings } from '../../../pipelines/agents/graphs/http-settings.ts';
import type { Authenticator } from '../../../pipelines/tenants/authenticate.ts';
import type { ApiForm, OwnAccess, OwnRoutes } from '../../server/api-form.ts';
import { identifyCaller } from '../../server/authentication.ts';
import { runs } from '../agent-operation.ts';
import '../access/agent-access.ts';
import { forwardToApp } from './hand-to-app.ts';

/**
 * The routes of the custom app. Routes that it declares by method and path take precedence over the server's own; the
 * app also gets all requests that the server has no route for. They need no authentication unless
 * `http.enable_custom_route_auth` is set. Then they require custom authentication (`auth.path`) or, without that, an
 * API key with access to the deployment's workspace and the permission to run graphs.
 */
export function appRoutes(options: {
  readonly app: HttpApp;
  readonly ownAccess?: OwnAccess;
  readonly http?: HttpSettings;
  readonly authenticator: Authenticator;
  readonly workspaceId: string;
  readonly bodyLimit: ApiForm['bodyLimit'];
}): OwnRoutes {
  const { app, ownAccess, http, authenticator, workspaceId, bodyLimit } = options;

  async function identify(...[request, reply]: Parameters<OwnRoutes['handle']>): Promise<AgentUser> {
    if (ownAccess) {
      await ownAccess.identify(request);
      const { user } = request.agentAccess ?? {};
      if (user === undefined) throw runlakeError('API_KEY_MISSING');
      return user;
    }
    const renew = async () => {
      const caller = await identifyCaller(request, runs, authenticator, workspaceId);
      if (caller === undefined) throw runlakeError('API_KEY_MISSING');
      return caller;
    };
    const { userId } = await renew();
    request.access = request.server.accessWatch.open(request, reply, renew);
    return { identity: userId, display_name: userId, is_authenticated: true, permissions: [] };
  }

  const deps = { app, bodyLimit, identify: http?.enable_custom_route_auth ? identify : undefined };
  return {
    names: (method, path) => app.names(method, path),
    handle: (request, reply) => forwardToApp(request, reply, deps),
  };
}
