import type { FastifyRequest } from 'fastify';
import type { Database } from '../../../infra/postgres/database.ts';
import { normaliseTargetPath } from '../../../pipelines/agents/app/app-route.ts';
import { computeSystemAssistantId } from '../../../pipelines/agents/assistants/assistant.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { AuthProcess } from '../../../pipelines/agents/auth/auth-process.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { AuthorisationInput, CustomAccess } from '../../server/api-form.ts';
import { stripQuery } from '../../server/canonical-url.ts';
import type { UntaggedOperation } from '../../server/operation.ts';
import type { AgentOperation } from '../agent-operation.ts';
import type { AgentAccess } from './agent-access.ts';
import { Authorizer } from './authorizer.ts';
import type { Rule, RuleInput } from './rules.ts';

/**
 * Returns an access check that authenticates and authorises requests with project code instead of API keys. The rule of
 * each operation decides what the caller can access. All other code of Runlake treats every such caller as `operator`.
 */
export function createCustomAccess(options: {
  readonly authProcess: AuthProcess;
  readonly database: Database;
  readonly deploymentId: string;
  readonly operator: Caller;
  readonly graphIds: readonly string[];
}): CustomAccess {
  const { authProcess, database, deploymentId, operator } = options;
  const systemAssistants = new Set(options.graphIds.map(computeSystemAssistantId));
  const authorise = <Input extends object>(
    operation: UntaggedOperation,
    access: AgentAccess,
    input: Input,
    proceed: (input: Input) => Promise<unknown>,
  ) => {
    // Every operation that is not public has a rule; see `defineAgentOperation`.
    const rule = (operation as AgentOperation).rule as Rule;
    const authorizer = new Authorizer({ authProcess, database, deploymentId, systemAssistants, access });
    return rule(input as unknown as RuleInput, authorizer, (changes) => proceed({ ...input, ...changes }));
  };
  const toAgentAccess = (user: AgentUser): AgentAccess => ({
    user,
    async authorizePart(operation, input, proceed) {
      const access = toAgentAccess(user);
      return authorise(operation, access, input, (changedInput) => proceed({ ...changedInput, access }));
    },
  });
  return {
    async identify(request) {
      const { rawHeaders } = request.raw;
      const headers = rawHeaders.flatMap((name, index): [string, string][] =>
        index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : [],
      );
      const { method } = request;
      const url = buildHandlerUrl(request);
      request.agentAccess = toAgentAccess(await authProcess.identify({ method, url, headers }));
      return operator;
    },
    async handle(operation, input: AuthorisationInput, handler) {
      return authorise(operation, input.request.agentAccess as AgentAccess, input, handler);
    },
  };
}

/**
 * Returns the URL that the `authenticate` handler of the project gets. Its path is that of the operation, not that of
 * the request: the router decodes paths and ignores duplicate slashes and a slash at the end, so that a handler that
 * decides by the path of the request could be bypassed.
 */
function buildHandlerUrl({ originalUrl, params, routeOptions }: FastifyRequest): string {
  const { operation } = routeOptions.config;
  const requestPath = stripQuery(originalUrl);
  const path = operation
    ? operation.path.replace(/:([^/]+)/g, (_, name: string) =>
        encodeURIComponent((params as Readonly<Record<string, string>>)[name] ?? ''),
      )
    : // A route of the custom app.
      normaliseTargetPath(requestPath);
  return new URL(`http://localhost${path}${originalUrl.slice(requestPath.length)}`).href;
}
