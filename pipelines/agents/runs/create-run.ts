import { v7 as uuidv7 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireStorableJson } from '../../../infra/json/json-value.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { runInTransaction } from '../../../infra/postgres/pool.ts';
import type { Sender } from '../../ingest/accept/draft.ts';
import type { Assistant } from '../assistants/assistant.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import type { ThreadTtl } from '../threads/thread.ts';
import { requestCancel } from './cancel-run.ts';
import { endWaitingRuns } from './end-run.ts';
import { lockThread } from './lock-thread.ts';
import type { CancelAction, GraphConfig, MultitaskStrategy, Run, RunIds, RunKwargs } from './run.ts';

/** The threads that a run may use under custom authentication. */
export interface ThreadAccess {
  /** Members that the metadata of an existing thread must contain. */
  readonly required: RequiredMetadata | undefined;
  /** Metadata of a new thread; takes precedence over {@link NewRun.threadMetadata}. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

export interface NewRun {
  readonly assistant: Pick<Assistant, 'assistant_id' | 'graph_id'>;
  /** The thread of the run. If undefined, a new thread is created. */
  readonly threadId: string | undefined;
  /**
   * Whether a new thread is created for the run, with the id `threadId` if it is set. Default: true if `threadId` is
   * undefined.
   */
  readonly stateless?: boolean;
  /** What to do if the thread does not exist. */
  readonly ifNotExists: 'create' | 'reject';
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Metadata of a new thread, in addition to the ids of graph and assistant. */
  readonly threadMetadata?: Readonly<Record<string, unknown>>;
  /** New config of the thread. Default: the thread keeps its config. */
  readonly threadConfig?: GraphConfig | undefined;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly afterSeconds: number;
  /** Whether a new thread is hidden and deleted together with the run. */
  readonly temporary: boolean;
  readonly runId?: string;
  readonly sender?: Partial<Sender> | undefined;
  /** The end user or API key whose share of the run slots the run uses. Default: the deployment itself. */
  readonly callerId?: string | undefined;
  /** Restricts the threads that the run may use. Default: any thread. */
  readonly threadAccess?: ThreadAccess | undefined;
  /** TTL of a new thread that is not temporary. Default: none. */
  readonly threadTtl?: ThreadTtl | undefined;
}

/**
 * Creates a pending run, which any process can claim. Runs in the transaction `sql` or, if `sql` is a database, in a
 * new transaction.
 *
 * @throws THREAD_NOT_FOUND; THREAD_EXISTS if `stateless` and the id is in use; THREAD_BUSY for the strategy `reject`;
 *   INVALID_REQUEST if Postgres cannot store the metadata
 */
export async function createRun(sql: Database | Sql, deploymentId: string, run: NewRun): Promise<Run> {
  return (await createRunIfAssistantUnchanged(sql, deploymentId, run, undefined)) as Run;
}

/**
 * Like {@link createRun}, for an assistant from a cache. Creates the run only if `updated_at` of the assistant is still
 * `seenAt`. If `seenAt` is undefined, the assistant is not checked.
 *
 * @returns undefined if the assistant has changed and no run was created.
 * @throws the errors of {@link createRun}
 */
export async function createRunIfAssistantUnchanged(
  sql: Database | Sql,
  deploymentId: string,
  run: NewRun,
  seenAt: string | undefined,
): Promise<Run | undefined> {
  requireStorableJson(run.metadata, ['body', 'metadata']);
  const strategy = run.multitaskStrategy;
  const ids = { deploymentId, threadId: run.threadId ?? uuidv7(), runId: run.runId ?? uuidv7() };
  const added = await addRun(sql, ids, run, { allowOthers: strategy === 'enqueue', seenAt });
  if (added !== 'going') return added;
  if (strategy === 'reject') throw runlakeError('THREAD_BUSY', { thread: ids.threadId });
  return runInTransaction(sql, async (tx) => {
    await lockThread(tx, deploymentId, ids.threadId);
    await stopOtherRuns(tx, deploymentId, ids.threadId, strategy === 'rollback' ? 'rollback' : 'interrupt');
    return (await addRun(tx, ids, run, { allowOthers: true })) as Run;
  });
}

interface AddedRow {
  readonly outcome: string;
  readonly made_at: string;
}

interface AddRunOptions {
  readonly allowOthers: boolean;
  readonly seenAt?: string | undefined;
}

const buildAddRunSql = (assistant: string) =>
  `agents.add_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, ${assistant}, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`;
const addRunSql = `SELECT * FROM ${buildAddRunSql('$11')}`;
/**
 * Adds a run only if the assistant is unchanged. `agents.add_run` gets the id from the row of the assistant, so that
 * Postgres calls the function only if it has found the row.
 */
const addRunIfAssistantUnchangedSql = `
SELECT added.* FROM agents.assistants seen, LATERAL ${buildAddRunSql('seen.assistant_id')} added
WHERE seen.deployment_id = $1 AND seen.assistant_id = $11 AND seen.updated_at = $22`;

/**
 * Adds a run. Returns `going` if the thread has another unfinished run and `allowOthers` is false; undefined if the
 * assistant has changed since `seenAt`.
 */
async function addRun(
  sql: Sql,
  ids: RunIds,
  run: NewRun,
  { allowOthers, seenAt }: AddRunOptions,
): Promise<Run | 'going' | undefined> {
  const { deploymentId, threadId, runId } = ids;
  const { assistant, kwargs, metadata, multitaskStrategy, threadAccess, sender } = run;
  const isNewThread = run.stateless ?? run.threadId === undefined;
  const ttl = isNewThread && run.temporary ? undefined : run.threadTtl;
  const [added] = await sql.query<AddedRow>(
    seenAt === undefined ? addRunSql : addRunIfAssistantUnchangedSql,
    [
      deploymentId,
      threadId,
      isNewThread ? 'own' : run.ifNotExists === 'create' ? 'where-missing' : 'never',
      threadAccess?.required,
      { ...run.threadMetadata, ...threadAccess?.metadata },
      // The metadata of a thread names the graph and assistant of its last run. If the run is undone, triggers restore these
      // and the config, unless a later run set them too. Each run sets its graph, but stores a former one only if it differs;
      // a run that sets a config always stores the former one. So only the trigger of the graph looks at other later runs.
      { graph_id: assistant.graph_id, assistant_id: assistant.assistant_id },
      ttl?.minutes,
      ttl?.strategy,
      allowOthers,
      runId,
      assistant.assistant_id,
      assistant.graph_id,
      JSON.stringify(kwargs),
      metadata,
      multitaskStrategy,
      run.temporary,
      run.afterSeconds,
      sender === undefined ? null : JSON.stringify(sender),
      run.callerId,
      kwargs.langsmith_tracer?.project_name,
      run.threadConfig === undefined ? null : JSON.stringify(run.threadConfig),
      ...(seenAt === undefined ? [] : [seenAt]),
    ],
    { name: seenAt === undefined ? 'agents_add_run' : 'agents_add_run_as_seen' },
  );
  if (added === undefined) return undefined;
  const { outcome, made_at } = added;
  if (outcome === 'going') return outcome;
  if (outcome === 'thread-exists') throw runlakeError('THREAD_EXISTS', { thread: threadId });
  // Return the same error for both outcomes, so that clients cannot detect a thread of another user.
  if (outcome === 'no-thread' || outcome === 'not-yours') throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
  return buildPendingRun(ids, run, made_at);
}

/** Returns a run as it is after its creation. */
export function buildPendingRun(
  { threadId, runId }: Pick<RunIds, 'threadId' | 'runId'>,
  { assistant, metadata, kwargs, multitaskStrategy }: NewRun,
  createdAt: string,
): Run {
  return {
    run_id: runId,
    thread_id: threadId,
    assistant_id: assistant.assistant_id,
    created_at: createdAt,
    updated_at: createdAt,
    status: 'pending',
    metadata,
    kwargs,
    multitask_strategy: multitaskStrategy,
  };
}

/** Ends the pending runs of a thread and requests that the running run stops. */
async function stopOtherRuns(tx: Sql, deploymentId: string, threadId: string, action: CancelAction): Promise<void> {
  const running = await tx.query<{ run_id: string }>(
    "SELECT run_id FROM agents.runs WHERE deployment_id = $1 AND thread_id = $2 AND status = 'running'",
    [deploymentId, threadId],
    { name: 'agents_running_run' },
  );
  await endWaitingRuns(tx, deploymentId, threadId, { remove: action === 'rollback' });
  for (const { run_id } of running) await requestCancel(tx, deploymentId, run_id, action);
}
