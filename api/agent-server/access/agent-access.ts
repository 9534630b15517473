import type { FastifyRequest } from 'fastify';
import type { UntaggedAgentOperation } from '../agent-operation.ts';
import type { CallerAccess } from './authorizer.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set if the project's custom authentication identified the caller. */
    agentAccess?: AgentAccess;
  }
}

export interface AgentAccess extends CallerAccess {
  /**
   * Authorises one part of the request with the rule of `operation`. Then calls `proceed` with the input that the rule
   * returned and an access object that is valid only for this part.
   */
  authorizePart(
    operation: UntaggedAgentOperation,
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
  operation: UntaggedAgentOperation,
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
