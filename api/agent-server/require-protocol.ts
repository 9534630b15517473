import type { FastifyRequest } from 'fastify';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { pathOf } from '../server/register-operation.ts';
import type { Agents } from './agent-services.ts';

/** @throws ROUTE_NOT_FOUND if the langgraph.json disables the protocol. */
export function requireProtocol(agents: Agents, protocol: 'mcp' | 'a2a', request: FastifyRequest): void {
  if (agents.protocols?.[protocol] === false) throw noRoute(request);
}

export function noRoute({ method, originalUrl }: FastifyRequest): RunlakeError {
  return runlakeError('ROUTE_NOT_FOUND', { method, path: pathOf(originalUrl) });
}
