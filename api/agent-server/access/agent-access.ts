import type { FastifyRequest } from 'fastify';
import type { RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { ThreadAccess } from '../../../pipelines/agents/runs/create-run.ts';
import type { AgentOperation } from '../agent-operation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set if the project's custom authentication identified the caller. */
    agentAccess?: AgentAccess;
  }
}

export interface AgentAccess {
  readonly user: AgentUser;
  /** Restricts the threads on which the request can start or stop runs. Unset: all threads. */
  threads?: ThreadAccess;
  /** Restricts the store items that the request can find. Unset: all items. */
  items?: RequiredMetadata | undefined;
  /** Assistant of the last authorised run, taken from the request or from the run's thread. */
  assistantId?: string | undefined;
  /**
   * Authorises one part of the request with the rule of `operation`. Then calls `proceed` with the input that the rule
   * returned and an access object that is valid only for this part.
   */
  authorizePart(
    operation: AgentOperation,
    input: RequestPartInput,
    proceed: (input: RequestPartInput & { readonly access: AgentAccess }) => Promise<unknown>,
  ): Promise<unknown>;
}

/** Input of one part of a request, validated against the schema of the part's operation. */
interface RequestPartInput {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: Readonly<Record<string, unknown>>;
}

/**
 * Executes one part of a request that can consist of several parts. Under custom authentication, the handlers and
 * filters of `operation` authorise the part. `proceed` receives the input as changed by them, and the access object of
 * the part. If the part is a search that cannot match anything, `proceed` is not called, and the result is the empty
 * result of `operation`.
 *
 * @throws the errors of the rule of `operation`, such as AUTH_FORBIDDEN
 */
export function executeRequestPart<Input extends RequestPartInput, Result>(
  { agentAccess }: FastifyRequest,
  operation: AgentOperation,
  input: Input,
  proceed: (input: Input & { readonly access?: AgentAccess }) => Promise<Result>,
): Promise<Result> {
  if (agentAccess === undefined) return proceed(input);
  return agentAccess.authorizePart(
    operation,
    input,
    proceed as Parameters<AgentAccess['authorizePart']>[2],
  ) as Promise<Result>;
}
