import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { systemAssistantId } from '../../../pipelines/agents/assistants/assistant.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { AuthProcess } from '../../../pipelines/agents/auth/auth-process.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { HandledInput, OwnAccess } from '../../server/api-form.ts';
import type { Operation } from '../../server/operation.ts';
import { accessRules } from './access-rules.ts';
import type { AgentAccess } from './agent-access.ts';
import { Questions } from './questions.ts';

/**
 * Authentication and authorisation by project code, in index of API keys: {@link accessRules} decide what the caller
 * can access. In the rest of Runlake every such caller acts as `operator`. An operation without a rule is refused.
 */
export function customAccess(options: {
  readonly authProcess: AuthProcess;
  readonly database: Database;
  readonly deploymentId: string;
  readonly operator: Caller;
  readonly graphIds: readonly string[];
}): OwnAccess {
  const { authProcess, database, deploymentId, operator } = options;
  const systemAssistants = new Set(options.graphIds.map(systemAssistantId));
  const rules = (operationId: string, access: AgentAccess) => {
    const rule = accessRules[operationId];
    if (rule === undefined) {
      throw runlakeError('AUTH_FORBIDDEN', {
        reason: `'${operationId}' is not available under custom authentication.`,
      });
    }
    const questions = new Questions({ authProcess, database, deploymentId, systemAssistants, access });
    return (input: object, proceed: (changes?: object) => Promise<unknown>) =>
      rule(input as Parameters<typeof rule>[0], questions, proceed);
  };
  const accessOf = (user: AgentUser): AgentAccess => ({
    user,
    async part(operationId, input, proceed) {
      const access = accessOf(user);
      return rules(operationId, access)(input, (changes) => proceed({ ...input, ...changes, access }));
    },
  });
  return {
    async identify(request) {
      const { rawHeaders } = request.raw;
      const headers = rawHeaders.flatMap((name, index): [string, string][] =>
        index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : [],
      );
      const url = new URL(request.originalUrl, 'http://localhost').href;
      request.agentAccess = accessOf(await authProcess.identify({ method: request.method, url, headers }));
      return operator;
    },
    async handle({ operationId }: Operation, input: HandledInput, handler) {
      const access = input.request.agentAccess as AgentAccess;
      return rules(operationId, access)(input, (changes) => handler({ ...input, ...changes }));
    },
  };
}
