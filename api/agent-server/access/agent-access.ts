import type { RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { ThreadAccess } from '../../../pipelines/agents/runs/create-run.ts';
import type { Operation } from '../../server/operation.ts';
import type { PartInput } from './as-operation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set where a project's own authentication says who asks. */
    agentAccess?: AgentAccess;
  }
}

export interface AgentAccess {
  readonly user: AgentUser;
  /** Threads that what the request starts or stops may be on. Unset: all. */
  threads?: ThreadAccess;
  /** Items of the store that the request may find. Unset: all. */
  items?: RequiredMetadata | undefined;
  /** The assistant of the run that was asked about last, as the request or its thread names it. */
  assistantId?: string | undefined;
  /** Goes on with a part of what is asked by the rule of the operation that does the same, with an access of its own. */
  part(
    operationId: Operation['operationId'],
    input: PartInput,
    go: (input: PartInput & { readonly access: AgentAccess }) => Promise<unknown>,
  ): Promise<unknown>;
}
