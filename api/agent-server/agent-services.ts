import type { Config } from '../../infra/config/settings.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { RecentAssistants } from '../../pipelines/agents/assistants/recent-assistants.ts';
import type { GraphNodes } from '../../pipelines/agents/graphs/graph-nodes.ts';
import type { HeaderRule } from '../../pipelines/agents/runs/copied-headers.ts';
import type { Seat } from '../../pipelines/agents/runs/request-run.ts';
import type { GraphTypes } from '../../pipelines/agents/schemas/read-types-in-background.ts';
import type { StoreRules } from '../../pipelines/agents/store/store-item.ts';
import type { StreamHub } from '../../pipelines/agents/streams/stream-ports.ts';
import type { TellState } from '../../pipelines/agents/streams/tell-state.ts';
import type { ThreadTtl } from '../../pipelines/agents/threads/create-thread.ts';
import type { WebhookRules } from '../../pipelines/agents/webhooks/webhook-rules.ts';
import type { WorkerPool } from '../../pipelines/agents/workers/worker-pool.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';

/** One graph of the langgraph.json. */
export interface ServedGraph {
  readonly name: string;
  readonly description: string | null;
  /** Why it cannot be used; its assistant is still listed. */
  readonly fault?: string;
}

/** Everything that operations of the agent server call, filled once by the wiring of its role. */
export interface AgentServices {
  readonly authenticator: Authenticator;
  readonly agents: Agents;
}

export interface Agents {
  /** The deployment that this server is a process of; callers who do not reach its workspace get 403 before any handler. */
  readonly deploymentId: string;
  /** Of the deployment. */
  readonly organizationId: string;
  /** Of the deployment. */
  readonly workspaceId: string;
  readonly config: Config;
  readonly database: Database;
  /** Answers questions that need graph code. */
  readonly pool: WorkerPool;
  /** What is known of graphs by their TypeScript types. */
  readonly types: GraphTypes;
  /** Where events of runs are read. */
  readonly hub: StreamHub;
  /** Tells readers of threads of state that was written outside a run. */
  readonly tellState: TellState;
  /** By id. */
  readonly graphs: Readonly<Record<string, ServedGraph>>;
  /** Nodes of a graph, where they are known before it runs. Unset: of none. */
  readonly nodesOf?: (graphId: string) => GraphNodes | undefined;
  /** Of `@langchain/langgraph`, as graphs load it. */
  readonly libraryVersion?: string | undefined;
  /** From `store` of the langgraph.json; absent: no index, and nothing runs out. */
  readonly store?: StoreRules;
  /** Tells the executor of this process that there may be a run to take up; other processes hear of it from Postgres. */
  readonly wake: () => void;
  /** A seat in the executor of this process, for a run that need not wait. */
  readonly takeSeat?: () => Seat | undefined;
  /** Spare a run that its assistant is read first. Unset: it is read. */
  readonly recentAssistants?: RecentAssistants;
  /** Protocols that `http` of the langgraph.json has switched off are false. */
  readonly protocols?: { readonly mcp: boolean; readonly a2a: boolean };
  /** Which webhooks runs may have. Unset: nothing calls them, so that they are refused. */
  readonly webhooks?: WebhookRules;
  /** Which headers of a request its run gets. */
  readonly copiesHeader?: HeaderRule;
  /** Whether runs may have `feedback_keys`: there is a public address to leave feedback under. Unset: no. */
  readonly takesFeedback?: boolean;
  /** Of threads that are made and say nothing of it. Unset: they stay for good. */
  readonly threadTtl?: ThreadTtl | undefined;
}
