import type { FastifyRequest } from 'fastify';
import type { RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { ThreadAccess } from '../../../pipelines/agents/runs/create-run.ts';
import type { AgentOperation } from '../agent-operation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set if custom authentication of the project identified the caller. */
    agentAccess?: AgentAccess;
  }
}

export interface AgentAccess {
  readonly user: AgentUser;
  /** Restricts the threads on which the request can start or stop runs. Unset: all threads. */
  threads?: ThreadAccess;
  /** Restricts the store items that the request can find. Unset: all items. */
  items?: RequiredMetadata | undefined;
  /** Assistant of the last run that was authorised, from the request or from its thread. */
  assistantId?: string | undefined;
  /**
   * Authorises a part of the request with the rule of `operation`, then calls `proceed` with the input that the rule
   * returns and an access object for this part only.
   */
  part(
    operation: AgentOperation,
    input: PartInput,
    proceed: (input: PartInput & { readonly access: AgentAccess }) => Promise<unknown>,
  ): Promise<unknown>;
}

/** Input of one part of a request, validated against the schema of its operation. */
interface PartInput {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: Readonly<Record<string, unknown>>;
}

/**
 * Executes one part of a request that can consist of several parts. Under custom authentication, the handlers and
 * filters of `operation` authorise the part. `proceed` receives the input after their changes, and the access object of
 * the part. `proceed` is not called for a search that cannot match anything; the result is then the empty result of
 * `operation`.
 *
 * @throws the errors of the rule of `operation`, such as AUTH_FORBIDDEN
 */
export function asOperation<Input extends PartInput, Result>(
  { agentAccess }: FastifyRequest,
  operation: AgentOperation,
  input: Input,
  proceed: (input: Input & { readonly access?: AgentAccess }) => Promise<Result>,
): Promise<Result> {
  if (agentAccess === undefined) return proceed(input);
  return agentAccess.part(operation, input, proceed as Parameters<AgentAccess['part']>[2]) as Promise<Result>;
}
