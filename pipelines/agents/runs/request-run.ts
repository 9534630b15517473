import { uuidv7 } from '../../../infra/ids/uuid-v7.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Assistant } from '../assistants/assistant.ts';
import type { RecentAssistants } from '../assistants/recent-assistants.ts';
import { resolveAssistant } from '../assistants/resolve-assistant.ts';
import type { AgentUser } from '../auth/agent-user.ts';
import { endUserId } from '../auth/end-user.ts';
import { type GraphNodes, requireNodes } from '../graphs/graph-nodes.ts';
import type { StreamHub, StreamReader } from '../streams/stream-ports.ts';
import type { ThreadTtl } from '../threads/create-thread.ts';
import { noteThreadConfig } from '../threads/note-thread-config.ts';
import { findThread } from '../threads/read-thread.ts';
import type { Thread } from '../threads/thread.ts';
import type { WebhookRules } from '../webhooks/webhook-rules.ts';
import type { HeaderRule } from './copied-headers.ts';
import { createAsSeen, type NewRun, type ThreadAccess } from './create-run.ts';
import { requireCheckpoint } from './require-checkpoint.ts';
import type { Run } from './run.ts';
import { type RunRequest, readRunRequest } from './run-request.ts';
import type { ClaimedRun } from './run-row.ts';

/** Room for one run in this process, kept until it is used. */
export interface Seat {
  /** The process that claims the run. */
  readonly processId: string;
  /** Executes a run that was claimed for it, or gives the seat back. Called once. */
  use(claimed: ClaimedRun | undefined): void;
}

export interface RequestPorts {
  readonly deploymentId: string;
  /** The organisation of the deployment. */
  readonly organizationId: string;
  readonly database: Database;
  readonly hub: StreamHub;
  /** Tells the executor of this process. */
  readonly wake: () => void;
  /** A seat in the executor of this process, for a run that need not wait. Undefined: it has none. */
  readonly takeSeat?: () => Seat | undefined;
  /** Spare a run that its assistant is read first. */
  readonly recentAssistants?: RecentAssistants;
  /** Undefined: nothing calls webhooks, so that they are refused. */
  readonly webhooks?: WebhookRules;
  readonly copiesHeader?: HeaderRule;
  readonly takesFeedback?: boolean;
  /** Nodes of a graph, where they are known before it runs. Those who execute the run know the others. */
  readonly nodesOf?: (graphId: string) => GraphNodes | undefined;
  /** Of threads that are made and say nothing of it. */
  readonly threadTtl?: ThreadTtl | undefined;
}

export interface RequestedRun {
  readonly request: RunRequest;
  /** Undefined: without a thread, on one made for it alone. */
  readonly threadId: string | undefined;
  readonly sender: { readonly userId: string; readonly keyId: string; readonly workspaceId: string | undefined };
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Who asks, where a project's own authentication says so. */
  readonly user?: AgentUser | undefined;
  /** Which threads those may run on. Default: all. */
  readonly threadAccess?: ThreadAccess | undefined;
}

export interface MadeRun {
  readonly deploymentId: string;
  readonly run: Run;
  readonly cancelOnDisconnect: boolean;
}

/** Makes a run. @throws ASSISTANT_NOT_FOUND, THREAD_NOT_FOUND, THREAD_BUSY, CHECKPOINT_NOT_FOUND, GRAPH_NODE_UNKNOWN, FIELD_NOT_BUILT, WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET */
export async function requestRun(ports: RequestPorts, requested: RequestedRun): Promise<MadeRun> {
  return make(ports, requested, { runId: uuidv7(), threadId: requested.threadId ?? uuidv7() });
}

/** Makes a run with a reader that was attached before, and so misses nothing. @throws as {@link requestRun} does. */
export async function requestFollowedRun(
  ports: RequestPorts,
  requested: RequestedRun,
): Promise<MadeRun & { readonly reader: StreamReader }> {
  const ids = { runId: uuidv7(), threadId: requested.threadId ?? uuidv7() };
  const reader = await ports.hub.readRun({ deploymentId: ports.deploymentId, ...ids }, 'now');
  try {
    return { ...(await make(ports, requested, ids)), reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

interface NewIds {
  readonly runId: string;
  readonly threadId: string;
}

async function make(ports: RequestPorts, requested: RequestedRun, ids: NewIds): Promise<MadeRun> {
  const { database, deploymentId, recentAssistants } = ports;
  const recent = recentAssistants?.get(deploymentId, requested.request.assistant_id);
  const thread = requested.threadId && (await findThread(database, deploymentId, requested.threadId));
  const from = { ...requested, ...(thread && { thread }) };
  let refusal: { readonly reason: unknown } | undefined;
  if (recent !== undefined) {
    try {
      const made = await makeOf(ports, from, ids, recent, recent.updated_at);
      if (made !== undefined) return made;
    } catch (reason) {
      refusal = { reason };
    }
  }
  const assistant = await resolveAssistant(database, deploymentId, requested.request.assistant_id);
  // What is wrong with the assistant as it was may be right by now.
  if (refusal !== undefined && assistant.updated_at === recent?.updated_at) throw refusal.reason;
  recentAssistants?.note(deploymentId, assistant);
  return (await makeOf(ports, from, ids, assistant)) as MadeRun;
}

/** @returns undefined where the assistant, as it was read when it was updated at `seenAt`, is another one now. */
async function makeOf(
  ports: RequestPorts,
  { request, threadId, thread, sender, headers, user, threadAccess }: RequestedRun & { readonly thread?: Thread },
  ids: NewIds,
  assistant: Assistant,
  seenAt?: string,
): Promise<MadeRun | undefined> {
  const { database, deploymentId, webhooks, copiesHeader, takesFeedback, threadTtl } = ports;
  const nodes = ports.nodesOf?.(assistant.graph_id);
  if (nodes !== undefined) requireNodes(assistant.graph_id, nodes, request.command);
  const stateless = threadId === undefined;
  const rules = { copiesHeader, takesFeedback, webhooks };
  const origin = { assistant, thread, ...ids, stateless, userId: sender.userId, headers, user, ...rules };
  const { cancelOnDisconnect, ...wanted } = readRunRequest(request, origin);
  const { checkpoint } = wanted.kwargs;
  if (checkpoint) await requireCheckpoint(database, deploymentId, ids.threadId, checkpoint);
  const { workspaceId } = sender;
  const endUser = user && { userId: await endUserId(database, ports.organizationId, user.identity) };
  const newRun = {
    ...{ assistant, ...wanted, ...ids, stateless, threadAccess, threadTtl },
    callerId: endUser?.userId ?? sender.keyId,
    ...(workspaceId === undefined
      ? endUser && { sender: endUser }
      : { sender: { ...sender, workspaceId, ...endUser } }),
  };
  const run = await makeAndStart(ports, newRun, seenAt);
  if (run === undefined) return undefined;
  if (!wanted.temporary)
    await noteThreadConfig(database, { deploymentId, ...ids }, assistant.config, request.config, thread?.config);
  return { deploymentId, run, cancelOnDisconnect };
}

/** In this process at once, where it has room and the run need not wait. */
async function makeAndStart(
  { database, deploymentId, takeSeat, wake }: RequestPorts,
  wanted: NewRun,
  seenAt: string | undefined,
): Promise<Run | undefined> {
  const seat = wanted.afterSeconds > 0 ? undefined : takeSeat?.();
  let claimed: ClaimedRun | undefined;
  try {
    const created = await createAsSeen(database, deploymentId, wanted, seat?.processId, seenAt);
    claimed = created?.claimed;
    return created?.run;
  } finally {
    seat?.use(claimed);
    if (claimed === undefined) wake();
  }
}
