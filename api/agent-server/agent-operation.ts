import type { FastifyRequest } from 'fastify';
import { internals } from '../../infra/config/internals.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { SystemAssistantInput } from '../../pipelines/agents/assistants/write-assistants.ts';
import type { RequestDeps } from '../../pipelines/agents/runs/request-run.ts';
import type { GraphTypes } from '../../pipelines/agents/schemas/read-types-in-background.ts';
import type { StoreConfig } from '../../pipelines/agents/store/store-item.ts';
import type { PublishState } from '../../pipelines/agents/streams/publish-state.ts';
import type { UiBuilder } from '../../pipelines/agents/ui/build-uis.ts';
import type { WebhookRules } from '../../pipelines/agents/webhooks/webhook-rules.ts';
import type { WorkerPool } from '../../pipelines/agents/workers/front/worker-pool.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { Access, Operation, OperationSchema, TypedOperation } from '../server/operation.ts';
import { createRouteNotFoundError } from '../server/unserved-routes.ts';
import type { Rule } from './access/rules.ts';
import { eventStreamType, requireEventStream } from './streaming/sse.ts';

/**
 * Access requirements of operations that only read, and of operations that change or run something. The workspace is
 * always the workspace of the deployment, regardless of the default workspace of a key.
 */
export const readAccess = { permission: 'agents:read', tenantScope: 'workspace' } as const;
export const runAccess = { permission: 'agents:run', tenantScope: 'workspace' } as const;

/** Errors that custom authentication causes or that callers from another workspace receive. */
const possibleAccessErrors = [
  'DEPLOYMENT_FORBIDDEN',
  'AUTH_REJECTED',
  'AUTH_FORBIDDEN',
  'AUTH_UNAVAILABLE',
  'AUTH_HANDLER_INVALID',
] as const;

/** Errors that operations which execute graph code can return. */
export const graphErrors = [
  'ASSISTANT_NOT_FOUND',
  'GRAPH_NOT_FOUND',
  'GRAPH_UNUSABLE',
  'GRAPH_FAILED',
  'GRAPH_WORKER_BUSY',
] as const;

export interface AgentOperation extends Operation {
  /**
   * Authorises the request under custom authentication, instead of the permission. Unset only for public operations.
   */
  readonly rule?: Rule;
}

export type UntaggedAgentOperation = Omit<AgentOperation, 'tag'>;

type RuleField<A extends Access> = A extends { readonly public: true } ? object : { readonly rule: Rule };

/**
 * Declares an operation of the agent server, as `defineOperation` does for the main API. Paths have no prefix, and the
 * caller's workspace is the workspace of the deployment.
 */
export function defineAgentOperation<const A extends Access, const S extends OperationSchema>(
  operation: Omit<TypedOperation<A, S, AgentServices>, 'mount'> & RuleField<A>,
): UntaggedAgentOperation {
  const accessErrors = 'public' in operation.access ? [] : possibleAccessErrors;
  const streamsEvents = operation.schema.produces === eventStreamType;
  const handler: typeof operation.handler = (input) => {
    if (streamsEvents) requireEventStream(input.request);
    return operation.handler(input);
  };
  const errors = [
    ...(operation.servesWhileDraining ? [] : (['DEPLOYMENT_DELETED'] as const)),
    ...accessErrors,
    ...(streamsEvents ? (['EVENT_STREAM_NOT_ACCEPTED'] as const) : []),
    ...(operation.errors ?? []),
  ];
  const limit = reads(operation.access) ? { maxBodyBytes: internals.maxJsonBodyBytes } : {};
  return { ...limit, ...operation, handler, mount: 'root', errors };
}

/** Whether the body is only a search. Such bodies are small; only state and input of graphs may be large. */
const reads = (access: Access) => 'permission' in access && access.permission === readAccess.permission;

/** Checks that the protocol is enabled. @throws ROUTE_NOT_FOUND if the langgraph.json disables it. */
export function requireProtocol(agents: Agents, protocol: 'mcp' | 'a2a', request: FastifyRequest): void {
  if (!agents.protocols[protocol]) throw createRouteNotFoundError(request);
}

/** A graph of the langgraph.json. */
export type ServedGraph = Omit<SystemAssistantInput, 'graphId'>;

/** The services that operations of the agent server use. The role creates them once. */
export interface AgentServices {
  readonly authenticator: Authenticator;
  readonly agents: Agents;
}

/** The fields of a handler's input that are common to all operations. */
export interface AgentInput {
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly services: AgentServices;
}

/** The deployment that this server serves, and what its operations use. */
export interface Agents extends RequestDeps {
  /** Id of the workspace that the deployment belongs to. Callers without access to it get 403 before any handler runs. */
  readonly workspaceId: string;
  readonly config: Config;
  /** Processes that execute queries which need graph code. */
  readonly pool: WorkerPool;
  /** Derives the schemas of graphs from their TypeScript types. */
  readonly types: GraphTypes;
  /** The UIs of the langgraph.json. */
  readonly uis: Pick<UiBuilder, 'get'>;
  /** Publishes a state that was not written by a run to the readers of its thread. */
  readonly publishState: PublishState;
  /** Graphs by graph id. */
  readonly graphs: Readonly<Record<string, ServedGraph>>;
  /** Version of `@langchain/langgraph` that the graphs load. */
  readonly libraryVersion: string | undefined;
  /** The configuration `store` in the langgraph.json. */
  readonly store: StoreConfig;
  /** Whether each protocol is enabled. False if `http` in the langgraph.json disables it. */
  readonly protocols: { readonly mcp: boolean; readonly a2a: boolean };
  readonly webhooks: WebhookRules;
}
