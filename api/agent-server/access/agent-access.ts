import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { ThreadAccess } from '../../../pipelines/agents/runs/create-run.ts';

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
}
