import type { Access, Operation, OperationOf, OperationSchema } from '../server/operation.ts';
import type { AgentServices } from './agent-services.ts';
import { eventStreamType, requireEventStream } from './streaming/require-event-stream.ts';

/** Permissions to read, and to change and run. The workspace is that of the deployment, whichever one a key has by default. */
export const reads = { permission: 'agents:read', tenantScope: 'workspace' } as const;
export const runs = { permission: 'agents:run', tenantScope: 'workspace' } as const;

/** A deployment of another workspace, or custom authentication. */
const turnedAwayBy = [
  'DEPLOYMENT_FORBIDDEN',
  'AUTH_REJECTED',
  'AUTH_FORBIDDEN',
  'AUTH_UNAVAILABLE',
  'AUTH_HANDLER_INVALID',
] as const;

/**
 * Declares an operation of the agent server, as `defineOperation` does for the main API. Its paths have no prefix, and the
 * caller's workspace is the deployment's.
 */
export function defineAgentOperation<const A extends Access, const S extends OperationSchema>(
  operation: Omit<OperationOf<A, S, AgentServices>, 'mount'>,
): Operation {
  const turnedAway = 'public' in operation.access ? [] : turnedAwayBy;
  const streams = operation.schema.produces === eventStreamType;
  const handler: typeof operation.handler = (input) => {
    if (streams) requireEventStream(input.request);
    return operation.handler(input);
  };
  const errors = [
    ...(operation.whileDraining ? [] : (['DEPLOYMENT_DELETED'] as const)),
    ...turnedAway,
    ...(streams ? (['EVENT_STREAM_NOT_ACCEPTED'] as const) : []),
    ...(operation.errors ?? []),
  ];
  return { ...operation, handler, mount: 'root', closedQuery: true, ignoresUnknownFields: true, errors };
}
