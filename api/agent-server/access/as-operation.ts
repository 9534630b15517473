import type { FastifyRequest } from 'fastify';
import type { Operation } from '../../server/operation.ts';
import type { AgentAccess } from './agent-access.ts';

/** Validated input of that operation. */
export interface PartInput {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: Readonly<Record<string, unknown>>;
}

/**
 * Executes a part of a request that can consist of several parts. Under custom authentication the part is authorised
 * like the operation `operationId`, by the same handlers and filters. `proceed` receives the input as changed by them,
 * and the access object for the part. It is not called for a search that cannot find anything; the result is then that
 * of the operation for no matches.
 *
 * @throws the errors of the rule of that operation, such as AUTH_FORBIDDEN
 */
export function asOperation<Input extends PartInput, Result>(
  { agentAccess }: FastifyRequest,
  operationId: Operation['operationId'],
  input: Input,
  proceed: (input: Input & { readonly access?: AgentAccess }) => Promise<Result>,
): Promise<Result> {
  if (agentAccess === undefined) return proceed(input);
  return agentAccess.part(operationId, input, proceed as Parameters<AgentAccess['part']>[2]) as Promise<Result>;
}
