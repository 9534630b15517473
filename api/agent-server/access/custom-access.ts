import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { systemAssistantId } from '../../../pipelines/agents/assistants/system-assistant.ts';
import type { AuthDesk } from '../../../pipelines/agents/auth/auth-desk.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { HandledInput, OwnAccess } from '../../server/api-form.ts';
import type { Operation } from '../../server/operation.ts';
import { accessRules } from './access-rules.ts';
import type { AgentAccess } from './agent-access.ts';
import { Questions } from './questions.ts';

/**
 * Access by the custom authentication of a project, in place of API keys: who asks, and by {@link accessRules} what they reach.
 * All of them act in the name of `operator` towards the rest of Runlake. An operation without a rule is open to nobody.
 */
export function customAccess(options: {
  readonly desk: AuthDesk;
  readonly database: Database;
  readonly operator: Caller;
  readonly graphIds: readonly string[];
}): OwnAccess {
  const { desk, database, operator } = options;
  const systemAssistants = new Set(options.graphIds.map(systemAssistantId));
  const { organizationId } = operator;
  return {
    async identify(request) {
      const { rawHeaders } = request.raw;
      const headers = rawHeaders.flatMap((name, place): [string, string][] =>
        place % 2 === 0 ? [[name, rawHeaders[place + 1] ?? '']] : [],
      );
      const url = new URL(request.originalUrl, 'http://localhost').href;
      const user = await desk.identify({ method: request.method, url, headers });
      request.agentAccess = { user };
      return operator;
    },
    handle(operation: Operation, input: HandledInput, handler) {
      const rule = accessRules[operation.operationId];
      const access = input.request.agentAccess as AgentAccess;
      if (rule === undefined) {
        throw fault('AUTH_FORBIDDEN', {
          reason: `'${operation.operationId}' is not open under custom authentication yet.`,
        });
      }
      const questions = new Questions({ desk, database, organizationId, systemAssistants, access });
      return rule(input as Parameters<typeof rule>[0], questions, (changes = {}) => handler({ ...input, ...changes }));
    },
  };
}
