import type { FastifyRequest } from 'fastify';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Access, Operation, OperationOf, OperationSchema } from '../server/operation.ts';
import { stripQuery } from '../server/register-operation.ts';
import type { Rule } from './access/rules.ts';
import type { AgentServices, Agents } from './agent-services.ts';
import { eventStreamType, requireEventStream } from './streaming/sse.ts';

/**
 * Access of operations that read, and of operations that change or run something. The workspace is always that of the
 * deployment, regardless of the default workspace of a key.
 */
export const reads = { permission: 'agents:read', tenantScope: 'workspace' } as const;
export const runs = { permission: 'agents:run', tenantScope: 'workspace' } as const;

/** Errors for callers from another workspace, and errors of custom authentication. */
const possibleAccessErrors = [
  'DEPLOYMENT_FORBIDDEN',
  'AUTH_REJECTED',
  'AUTH_FORBIDDEN',
  'AUTH_UNAVAILABLE',
  'AUTH_HANDLER_INVALID',
] as const;

/** Errors of operations that execute graph code. */
export const graphErrors = [
  'ASSISTANT_NOT_FOUND',
  'GRAPH_NOT_FOUND',
  'GRAPH_UNUSABLE',
  'GRAPH_FAILED',
  'GRAPH_WORKER_BUSY',
] as const;

export interface AgentOperation extends Operation {
  /** Replaces the permission under custom authentication. Unset only for public operations. */
  readonly rule?: Rule;
}

type RuleOf<A extends Access> = A extends { readonly public: true } ? object : { readonly rule: Rule };

/**
 * Declares an operation of the agent server, like `defineOperation` for the main API. The paths have no prefix, and the
 * caller's workspace is that of the deployment.
 */
export function defineAgentOperation<const A extends Access, const S extends OperationSchema>(
  operation: Omit<OperationOf<A, S, AgentServices>, 'mount'> & RuleOf<A>,
): AgentOperation {
  const accessErrors = 'public' in operation.access ? [] : possibleAccessErrors;
  const streams = operation.schema.produces === eventStreamType;
  const handler: typeof operation.handler = (input) => {
    if (streams) requireEventStream(input.request);
    return operation.handler(input);
  };
  const errors = [
    ...(operation.whileDraining ? [] : (['DEPLOYMENT_DELETED'] as const)),
    ...accessErrors,
    ...(streams ? (['EVENT_STREAM_NOT_ACCEPTED'] as const) : []),
    ...(operation.errors ?? []),
  ];
  return { ...operation, handler, mount: 'root', closedQuery: true, ignoresUnknownFields: true, errors };
}

/** @throws ROUTE_NOT_FOUND if the langgraph.json disables the protocol. */
export function requireProtocol(agents: Agents, protocol: 'mcp' | 'a2a', request: FastifyRequest): void {
  if (agents.protocols?.[protocol] === false) throw routeNotFound(request);
}

export function routeNotFound({ method, originalUrl }: FastifyRequest): RunlakeError {
  return runlakeError('ROUTE_NOT_FOUND', { method, path: stripQuery(originalUrl) });
}
