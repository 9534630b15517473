import type { RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { ThreadAccess } from '../../../pipelines/agents/runs/create-run.ts';
import type { Operation } from '../../server/operation.ts';
import type { PartInput } from './as-operation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set if custom authentication of the project identified the caller. */
    agentAccess?: AgentAccess;
  }
}

export interface AgentAccess {
  readonly user: AgentUser;
  /** Restricts the threads of runs that the request starts or stops. Unset: all threads. */
  threads?: ThreadAccess;
  /** Restricts the store items that the request can find. Unset: all items. */
  items?: RequiredMetadata | undefined;
  /** Assistant of the last run that was authorised, from the request or from its thread. */
  assistantId?: string | undefined;
  /**
   * Authorises a part of the request by the rule of `operationId`, then calls `proceed` with the resulting input and an
   * access object for this part only.
   */
  part(
    operationId: Operation['operationId'],
    input: PartInput,
    proceed: (input: PartInput & { readonly access: AgentAccess }) => Promise<unknown>,
  ): Promise<unknown>;
}
