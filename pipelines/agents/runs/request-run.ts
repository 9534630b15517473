import { v7 as uuidv7 } from 'uuid';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { createOrFind } from '../../../infra/postgres/database-error.ts';
import { requireWithin } from '../../../infra/postgres/page-within.ts';
import {
  type Assistant,
  type RecentAssistants,
  resolveAssistant,
  resolveAssistantId,
} from '../assistants/assistant.ts';
import { type AgentUser, registerEndUser } from '../auth/agent-user.ts';
import { requireCheckpoint } from '../checkpoints/copy-checkpoints.ts';
import { type GraphNodes, requireNodes } from '../graphs/graph-nodes.ts';
import type { StreamHub, StreamReader } from '../streams/stream-types.ts';
import { findThreadHead, type ThreadHead, type ThreadTtl } from '../threads/thread.ts';
import {
  buildPendingRun,
  createRun,
  createRunIfAssistantUnchanged,
  type NewRun,
  type ThreadAccess,
} from './create-run.ts';
import { lockThread } from './lock-thread.ts';
import { findRun } from './read-run.ts';
import type { Run } from './run.ts';
import { type RunRequest, type RunRules, readRunRequest } from './run-request.ts';

/** What creates the runs of a deployment. */
export interface RequestDeps extends RunRules {
  readonly deploymentId: string;
  /** Id of the organisation that the deployment belongs to. */
  readonly organizationId: string;
  readonly database: Database;
  /** Delivers the events of runs to readers. */
  readonly hub: StreamHub;
  /** Wakes the executor of this process to claim a run; other processes get a notification from Postgres. */
  readonly wake: () => void;
  /** Cache of assistants; a hit saves one query. */
  readonly recentAssistants: RecentAssistants;
  /**
   * Returns the nodes of a graph, against which the command of a request is checked. If they are not known yet, returns
   * undefined, and the worker checks the command instead.
   */
  readonly getNodes: (graphId: string) => GraphNodes | undefined;
  /** Default TTL of new threads. Unset: new threads do not expire. */
  readonly threadTtl: ThreadTtl | undefined;
}

export interface RequestedRun {
  readonly request: RunRequest;
  /** The thread of the run. If undefined, the run is stateless and a thread is created for it. */
  readonly threadId: string | undefined;
  readonly sender: { readonly userId: string; readonly keyId: string; readonly workspaceId: string | undefined };
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** The user, if the project has custom authentication. */
  readonly user?: AgentUser | undefined;
  /** The threads that the user may run on. Default: all. */
  readonly threadAccess?: ThreadAccess | undefined;
  /** Called under the lock of the thread, in the transaction that creates the run, which is rolled back if this rejects. */
  readonly check?: (tx: Sql) => Promise<void>;
}

export interface RequestedRunResult {
  readonly deploymentId: string;
  readonly run: Run;
  readonly cancelOnDisconnect: boolean;
}

/**
 * Validates a request and creates its run.
 *
 * @throws ASSISTANT_NOT_FOUND, THREAD_NOT_FOUND, THREAD_BUSY, CHECKPOINT_NOT_FOUND, GRAPH_NODE_UNKNOWN,
 *   FIELD_NOT_BUILT, WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET
 */
export async function requestRun(deps: RequestDeps, requested: RequestedRun): Promise<RequestedRunResult> {
  return validateAndCreate(deps, requested, { runId: uuidv7(), threadId: requested.threadId ?? uuidv7() });
}

/**
 * Attaches a reader and then creates a run, so that the reader receives all events. @throws the errors of {@link requestRun}
 */
export async function requestFollowedRun(
  deps: RequestDeps,
  requested: RequestedRun,
): Promise<RequestedRunResult & { readonly reader: StreamReader }> {
  const ids = { runId: uuidv7(), threadId: requested.threadId ?? uuidv7() };
  const reader = await deps.hub.readRun({ deploymentId: deps.deploymentId, ...ids }, 'now');
  try {
    return { ...(await validateAndCreate(deps, requested, ids)), reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

interface NewIds {
  readonly runId: string;
  readonly threadId: string;
}

async function validateAndCreate(deps: RequestDeps, requested: RequestedRun, ids: NewIds): Promise<RequestedRunResult> {
  const { database, deploymentId, recentAssistants } = deps;
  const cachedAssistant = recentAssistants.get(deploymentId, requested.request.assistant_id);
  const thread = requested.threadId && (await findThreadHead(database, deploymentId, requested.threadId));
  const from = { ...requested, ...(thread && { thread }) };
  let failure: { readonly reason: unknown } | undefined;
  if (cachedAssistant !== undefined) {
    try {
      const created = await createRunForAssistant(deps, from, ids, cachedAssistant, cachedAssistant.updated_at);
      if (created !== undefined) return created;
    } catch (reason) {
      failure = { reason };
    }
  }
  const assistant = await resolveAssistant(database, deploymentId, requested.request.assistant_id);
  // A stale cached assistant may have caused the error, so report the error only if the assistant has not changed.
  if (failure !== undefined && assistant.updated_at === cachedAssistant?.updated_at) throw failure.reason;
  recentAssistants.record(deploymentId, assistant);
  return (await createRunForAssistant(deps, from, ids, assistant)) as RequestedRunResult;
}

/** Creates the run of a request for `assistant`. @returns undefined if the assistant has changed since `seenAt`. */
async function createRunForAssistant(
  deps: RequestDeps,
  requested: CheckedRequest,
  ids: NewIds,
  assistant: Assistant,
  seenAt?: string,
): Promise<RequestedRunResult | undefined> {
  const { database, deploymentId } = deps;
  const { newRun, cancelOnDisconnect } = await prepareRun(deps, requested, ids, assistant);
  const { check } = requested;
  const create = (sql: Database | Sql) => createRunIfAssistantUnchanged(sql, deploymentId, newRun, seenAt);
  const checkAndCreate = (checkRequest: (tx: Sql) => Promise<void>) =>
    database.transaction(async (tx) => {
      await lockThread(tx, deploymentId, ids.threadId);
      await checkRequest(tx);
      return create(tx);
    });
  const run = await createOrFind<Run | undefined>(
    () => (check === undefined ? create(database) : checkAndCreate(check)),
    () => findCreatedRun(deps, newRun),
  );
  deps.wake();
  if (run === undefined) return undefined;
  return { deploymentId, run, cancelOnDisconnect };
}

/**
 * Finds a run that was perhaps created. A temporary run may have ended meanwhile, and is deleted then: it was created if the
 * log has events of it. If it were created again, it would be executed twice.
 */
async function findCreatedRun(deps: RequestDeps, newRun: PreparedRun): Promise<Run | undefined> {
  const { hub, database, deploymentId } = deps;
  const { threadId, runId, temporary } = newRun;
  const run = await findRun(database, deploymentId, { threadId, runId });
  if (run !== undefined || !temporary) return run;
  const reader = await hub.readRun({ deploymentId, threadId, runId }, 'start');
  void reader.finish();
  try {
    const { done } = await reader[Symbol.asyncIterator]().next();
    return done ? undefined : buildPendingRun(newRun, newRun, new Date().toISOString());
  } finally {
    reader.close();
  }
}

type CheckedRequest = RequestedRun & { readonly thread?: ThreadHead };
type PreparedRun = NewRun & NewIds;

/** Validates a request for `assistant`. @returns the run to create for it. */
async function prepareRun(
  deps: RequestDeps,
  { request, threadId, thread, sender, headers, user, threadAccess }: CheckedRequest,
  ids: NewIds,
  assistant: Assistant,
): Promise<{ readonly newRun: PreparedRun; readonly cancelOnDisconnect: boolean }> {
  const { database, deploymentId, threadTtl } = deps;
  const nodes = deps.getNodes(assistant.graph_id);
  if (nodes !== undefined) requireNodes(assistant.graph_id, nodes, request.command);
  const isStateless = threadId === undefined;
  const from = { stateless: isStateless, userId: sender.userId, headers, user };
  const origin = { assistant, thread, ...ids, ...from, rules: deps };
  const { cancelOnDisconnect, ...parsed } = readRunRequest(request, origin);
  const { checkpoint } = parsed.kwargs;
  if (checkpoint) await requireCheckpoint(database, deploymentId, ids.threadId, checkpoint);
  const { workspaceId } = sender;
  const endUser = user && { userId: await registerEndUser(database, deps.organizationId, user.identity) };
  const newRun = {
    ...{ assistant, ...parsed, ...ids, stateless: isStateless, threadAccess, threadTtl },
    callerId: endUser?.userId ?? sender.keyId,
    ...(workspaceId === undefined
      ? endUser && { sender: endUser }
      : { sender: { ...sender, workspaceId, ...endUser } }),
  };
  return { newRun, cancelOnDisconnect };
}

/**
 * Validates the requests of a batch, whose runs are stateless, and creates their runs in order. Creates all runs in one
 * transaction: a client repeats the whole batch if it fails, so a run that stayed would run twice.
 *
 * @throws the errors of {@link requestRun}
 */
export async function requestRuns(deps: RequestDeps, batch: readonly RequestedRun[]): Promise<Run[]> {
  const { database, deploymentId } = deps;
  const assistants = new Map<string, Assistant>();
  const newRuns: PreparedRun[] = [];
  for (const requested of batch) {
    const id = requested.request.assistant_id;
    const assistant = assistants.get(id) ?? (await resolveAssistant(database, deploymentId, id));
    assistants.set(id, assistant);
    const ids = { runId: uuidv7(), threadId: uuidv7() };
    newRuns.push((await prepareRun(deps, requested, ids, assistant)).newRun);
  }
  const create = () =>
    database.transaction(async (tx) => {
      const runs: Run[] = [];
      for (const newRun of newRuns) runs.push(await createRun(tx, deploymentId, newRun));
      return runs;
    });
  // All or none of them were created.
  const find = async () => {
    const first = await findCreatedRun(deps, newRuns[0] as PreparedRun);
    return first && newRuns.map((newRun) => buildPendingRun(newRun, newRun, first.created_at));
  };
  const runs = await createOrFind(create, find);
  deps.wake();
  return runs;
}

/**
 * Checks the size of the response to a batch of runs before any run is created. The response repeats, for each run, the
 * config and context of its assistant and the headers and user of the request, so it can be much larger than the
 * request.
 *
 * @throws ANSWER_TOO_LARGE
 */
export async function requireBatchSize(
  sql: Sql,
  deploymentId: string,
  runs: readonly RequestedRun[],
  limitBytes: number,
): Promise<void> {
  const assistantIds = runs.map(({ request }) => resolveAssistantId(request.assistant_id));
  const rows = await sql.query<{ assistant_id: string; bytes: number }>(
    `SELECT assistant_id, octet_length(config::text) + coalesce(octet_length(context::text), 0) AS bytes
     FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = ANY($2::uuid[])`,
    [deploymentId, [...new Set(assistantIds)]],
  );
  const bytesOf = new Map(rows.map(({ assistant_id, bytes }) => [assistant_id, bytes]));
  const shared = Buffer.byteLength(JSON.stringify([runs[0]?.headers, runs[0]?.user]));
  const bytes = assistantIds.reduce((sum, id) => sum + (bytesOf.get(id) ?? 0) + shared, 0);
  requireWithin(runs.length, bytes, limitBytes);
}
