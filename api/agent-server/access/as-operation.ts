import type { FastifyRequest } from 'fastify';
import type { Operation } from '../../server/operation.ts';
import type { AgentAccess } from './agent-access.ts';

/** Input as that operation takes it, checked before. */
export interface PartInput {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: Readonly<Record<string, unknown>>;
}

/**
 * Does one of the things that a request asks for, where it may ask for several: as `operationId` would do it, so that under custom
 * authentication the same handlers and filters say who may. `go` gets the input that they leave, with the access for what it makes;
 * a search that can find nothing does not go, and answers as that operation does.
 *
 * @throws what the rule of that operation throws: AUTH_FORBIDDEN and so on
 */
export function asOperation<Input extends PartInput, Result>(
  { agentAccess }: FastifyRequest,
  operationId: Operation['operationId'],
  input: Input,
  go: (input: Input & { readonly access?: AgentAccess }) => Promise<Result>,
): Promise<Result> {
  if (agentAccess === undefined) return go(input);
  return agentAccess.part(operationId, input, go as Parameters<AgentAccess['part']>[2]) as Promise<Result>;
}
