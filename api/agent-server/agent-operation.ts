import type { FastifyRequest } from 'fastify';
import { internals } from '../../infra/config/internals.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { RecentAssistants } from '../../pipelines/agents/assistants/assistant.ts';
import type { GraphNodes } from '../../pipelines/agents/graphs/graph-nodes.ts';
import type { HeaderRule } from '../../pipelines/agents/runs/run-request.ts';
import type { GraphTypes } from '../../pipelines/agents/schemas/read-types-in-background.ts';
import type { StoreConfig } from '../../pipelines/agents/store/store-item.ts';
import type { PublishState } from '../../pipelines/agents/streams/publish-state.ts';
import type { StreamHub } from '../../pipelines/agents/streams/stream-types.ts';
import type { ThreadTtl } from '../../pipelines/agents/threads/write-threads.ts';
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

type RuleField<A extends Access> = A extends { readonly public: true } ? object : { readonly rule: Rule };

/**
 * Declares an operation of the agent server, as `defineOperation` does for the main API. Paths have no prefix, and the
 * caller's workspace is the workspace of the deployment.
 */
export function defineAgentOperation<const A extends Access, const S extends OperationSchema>(
  operation: Omit<TypedOperation<A, S, AgentServices>, 'mount'> & RuleField<A>,
): AgentOperation {
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

/**
 * Checks that the protocol is enabled.
 *
 * @throws ROUTE_NOT_FOUND if the langgraph.json disables it.
 */
export function requireProtocol(agents: Agents, protocol: 'mcp' | 'a2a', request: FastifyRequest): void {
  if (agents.protocols?.[protocol] === false) throw createRouteNotFoundError(request);
}

/** A graph of the langgraph.json. */
export interface ServedGraph {
  readonly name: string;
  readonly description: string | null;
}

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

export interface Agents {
  /**
   * Id of the deployment that this server serves. Callers without access to the deployment's workspace get 403 before
   * any handler runs.
   */
  readonly deploymentId: string;
  /** Id of the organisation that the deployment belongs to. */
  readonly organizationId: string;
  /** Id of the workspace that the deployment belongs to. */
  readonly workspaceId: string;
  readonly config: Config;
  readonly database: Database;
  /** Processes that execute queries which need graph code. */
  readonly pool: WorkerPool;
  /** Derives the schemas of graphs from their TypeScript types. */
  readonly types: GraphTypes;
  /** Delivers the events of runs to readers. */
  readonly hub: StreamHub;
  /** Publishes a state that was not written by a run to the readers of its thread. */
  readonly publishState: PublishState;
  /** Graphs by graph id. */
  readonly graphs: Readonly<Record<string, ServedGraph>>;
  /** Returns the nodes of a graph if they are known before the graph runs. Unset: unknown for all graphs. */
  readonly getNodes?: (graphId: string) => GraphNodes | undefined;
  /** Version of `@langchain/langgraph` that the graphs load. */
  readonly libraryVersion?: string | undefined;
  /** The configuration `store` in the langgraph.json. Unset: no index and no TTL. */
  readonly store?: StoreConfig;
  /** Wakes the executor of this process to claim a run; other processes get a notification from Postgres. */
  readonly wake: () => void;
  /** Cache of assistants, so that creating a run does not query its assistant. Unset: no cache. */
  readonly recentAssistants?: RecentAssistants;
  /** Whether each protocol is enabled. False if `http` in the langgraph.json disables it. */
  readonly protocols?: { readonly mcp: boolean; readonly a2a: boolean };
  /** Validates the webhooks of runs. Unset: webhooks are not supported and are refused. */
  readonly webhooks?: WebhookRules;
  /** Decides which headers of a request are copied to its run. */
  readonly copiesHeader?: HeaderRule;
  /** Whether runs may have `feedback_keys`. They require a public URL for feedback. Unset: no. */
  readonly acceptsFeedbackKeys?: boolean;
  /** Tracing project of runs whose request names none. Unset: the project with the name of the graph. */
  readonly project?: string | undefined;
  /** Default TTL of new threads. Unset: new threads do not expire. */
  readonly threadTtl?: ThreadTtl | undefined;
}
