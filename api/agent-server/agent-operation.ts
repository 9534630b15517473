import type { FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
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
import type { WorkerPool } from '../../pipelines/agents/workers/worker-pool.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import type { Access, Operation, OperationOf, OperationSchema } from '../server/operation.ts';
import { stripQuery } from '../server/register-operation.ts';
import type { Rule } from './access/rules.ts';
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
  return { ...operation, handler, mount: 'root', errors };
}

/** @throws ROUTE_NOT_FOUND if the langgraph.json disables the protocol. */
export function requireProtocol(agents: Agents, protocol: 'mcp' | 'a2a', request: FastifyRequest): void {
  if (agents.protocols?.[protocol] === false) throw routeNotFound(request);
}

export function routeNotFound({ method, originalUrl }: FastifyRequest): RunlakeError {
  return runlakeError('ROUTE_NOT_FOUND', { method, path: stripQuery(originalUrl) });
}

/** One graph of the langgraph.json. */
export interface ServedGraph {
  readonly name: string;
  readonly description: string | null;
}

/** The services that operations of the agent server use, created once by its role. */
export interface AgentServices {
  readonly authenticator: Authenticator;
  readonly agents: Agents;
}

/** The part of a handler's input that is the same for all operations. */
export interface AgentInput {
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly services: AgentServices;
}

export interface Agents {
  /**
   * Id of the deployment that this server serves. Callers without access to its workspace get 403 before any handler
   * runs.
   */
  readonly deploymentId: string;
  /** Organisation of the deployment. */
  readonly organizationId: string;
  /** Workspace of the deployment. */
  readonly workspaceId: string;
  readonly config: Config;
  readonly database: Database;
  /** Executes queries that need graph code. */
  readonly pool: WorkerPool;
  /** Derives the schemas of graphs from their TypeScript types. */
  readonly types: GraphTypes;
  /** Delivers the events of runs to readers. */
  readonly hub: StreamHub;
  /** Publishes state that was written outside a run to the readers of its thread. */
  readonly publishState: PublishState;
  /** Graphs by id. */
  readonly graphs: Readonly<Record<string, ServedGraph>>;
  /** Returns the nodes of a graph if they are known before it runs. Unset: unknown for all graphs. */
  readonly getNodes?: (graphId: string) => GraphNodes | undefined;
  /** Version of `@langchain/langgraph` that the graphs load. */
  readonly libraryVersion?: string | undefined;
  /** The rules in `store` of the langgraph.json. Unset: no index and no TTL. */
  readonly store?: StoreConfig;
  /** Wakes the executor of this process to claim a run; other processes get a notification from Postgres. */
  readonly wake: () => void;
  /** Caches assistants, so that a new run does not query its assistant. Unset: no cache. */
  readonly recentAssistants?: RecentAssistants;
  /** False for protocols that `http` of the langgraph.json disables. */
  readonly protocols?: { readonly mcp: boolean; readonly a2a: boolean };
  /** Validates the webhooks of runs. Unset: webhooks are not sent, so they are refused. */
  readonly webhooks?: WebhookRules;
  /** Decides which headers of a request are copied to its run. */
  readonly copiesHeader?: HeaderRule;
  /** Whether runs may have `feedback_keys`, which requires a public URL for feedback. Unset: no. */
  readonly acceptsFeedbackKeys?: boolean;
  /** Default TTL of new threads. Unset: they do not expire. */
  readonly threadTtl?: ThreadTtl | undefined;
}
