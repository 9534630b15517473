/**
 * Makes runs.
 *
 * Invariant: what a new run does to the others of its thread is decided under the lock of the thread, once. `agents.add_run`, in
 * one statement,
 *
 *   1. locks the thread, or makes it;
 *   2. where another run waits or runs there and the strategy is not to wait, does nothing but say so;
 *   3. writes the run and what the thread says of it, which is busy then. Where this process has a seat for the run and nothing is
 *      before it, it is written as started, under a lease of this process; else those who execute runs are told.
 *
 * Where it did nothing the new one is refused; or a transaction locks the thread, ends the runs that wait, asks the one that runs to
 * stop, and adds the run, which is next.
 */
import { randomUUID } from 'node:crypto';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { uuidv7 } from '../../../infra/ids/uuid-v7.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { withinTransaction } from '../../../infra/postgres/within-transaction.ts';
import type { Assistant } from '../assistants/assistant.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import type { ThreadTtl } from '../threads/create-thread.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import { askToCancel } from './ask-to-cancel.ts';
import { endWaitingRuns } from './end-waiting-runs.ts';
import { lockThread } from './lock-thread.ts';
import type { CancelAction, MultitaskStrategy, Run, RunKwargs } from './run.ts';
import { type ClaimedRun, type RunSender, toClaimedRun } from './run-row.ts';

/** Which threads a run may be on, where a project's own authentication says so. */
export interface ThreadAccess {
  /** What the metadata of a thread that there is has to hold. */
  readonly required: RequiredMetadata | undefined;
  /** Metadata of a thread that is made, over {@link NewRun.threadMetadata}. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

export interface NewRun {
  readonly assistant: Pick<Assistant, 'assistant_id' | 'graph_id'>;
  /** Undefined: on a thread made for it. */
  readonly threadId: string | undefined;
  /** Whether the thread is made for it, under the id given. Default: where there is no id. */
  readonly stateless?: boolean;
  /** What happens where there is no such thread. */
  readonly ifNotExists: 'create' | 'reject';
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Metadata of a thread that is made for the run. Default: none but the ids of graph and assistant. */
  readonly threadMetadata?: Readonly<Record<string, unknown>>;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly afterSeconds: number;
  /** Whether a thread made for it goes with it, and is not to be seen until then. */
  readonly temporary: boolean;
  readonly runId?: string;
  readonly sender?: Partial<RunSender> | undefined;
  /** Whose share of the slots it uses: an end user or an API key. Default: the deployment itself. */
  readonly callerId?: string | undefined;
  /** Default: any thread. */
  readonly threadAccess?: ThreadAccess | undefined;
  /** Of a thread that is made and stays. Default: it stays for good. */
  readonly threadTtl?: ThreadTtl | undefined;
}

/** A run that was made and, where it was started at once, the claim on it. */
export interface CreatedRun {
  readonly run: Run;
  readonly claimed?: ClaimedRun;
}

/**
 * Makes a run, in the transaction that `sql` is or in one of its own. It is left to whoever claims it.
 *
 * @throws THREAD_NOT_FOUND, THREAD_BUSY where the strategy is to reject, INVALID_REQUEST for metadata that cannot be stored
 */
export async function createRun(sql: Database | Sql, deploymentId: string, run: NewRun): Promise<Run> {
  return (await createAndClaimRun(sql, deploymentId, run, undefined)).run;
}

/**
 * Makes a run, and claims it for the process unless it has to wait for another run or for its time.
 *
 * @throws as {@link createRun} does
 */
export async function createAndClaimRun(
  sql: Database | Sql,
  deploymentId: string,
  run: NewRun,
  processId: string | undefined,
): Promise<CreatedRun> {
  return (await createAsSeen(sql, deploymentId, run, processId, undefined)) as CreatedRun;
}

/**
 * The same for an assistant that was read some time ago, when its `updated_at` was `seenAt`. Undefined: it was read just now.
 *
 * @returns undefined where it is not that any more; nothing was made.
 * @throws as {@link createRun} does
 */
export async function createAsSeen(
  sql: Database | Sql,
  deploymentId: string,
  run: NewRun,
  processId: string | undefined,
  seenAt: string | undefined,
): Promise<CreatedRun | undefined> {
  requireStorableJson(run.metadata, ['body', 'metadata']);
  const strategy = run.multitaskStrategy;
  const ids = { deploymentId, threadId: run.threadId ?? uuidv7(), runId: run.runId ?? uuidv7() };
  const made = await addRun(sql, ids, run, { besideOthers: strategy === 'enqueue', processId, seenAt });
  if (made !== 'going') return made;
  if (strategy === 'reject') throw fault('THREAD_BUSY', { thread: ids.threadId });
  return withinTransaction(sql, async (tx) => {
    await lockThread(tx, deploymentId, ids.threadId);
    await giveWay(tx, deploymentId, ids.threadId, strategy === 'rollback' ? 'rollback' : 'interrupt');
    return (await addRun(tx, ids, run, { besideOthers: true, processId: undefined })) as CreatedRun;
  });
}

interface NewIds {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
}

interface AddedRow {
  readonly outcome: string;
  readonly made_at: string;
  readonly start_number: number;
  readonly base: string | null;
}

interface Adding {
  readonly besideOthers: boolean;
  readonly processId: string | undefined;
  readonly seenAt?: string | undefined;
}

const addSql = (assistant: string) =>
  `agents.add_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, ${assistant}, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`;
const addRunSql = `SELECT * FROM ${addSql('$11')}`;
/** The function is given what was looked up, so that it is called where something was. */
const addRunAsSeenSql = `
SELECT added.* FROM agents.assistants seen, LATERAL ${addSql('seen.assistant_id')} added
WHERE seen.deployment_id = $1 AND seen.assistant_id = $11 AND seen.updated_at = $22`;

/** `going`: others wait or run, and it was not to be beside them. `undefined`: its assistant is not as it was seen. */
async function addRun(
  sql: Sql,
  ids: NewIds,
  run: NewRun,
  { besideOthers, processId, seenAt }: Adding,
): Promise<CreatedRun | 'going' | undefined> {
  const { deploymentId, threadId, runId } = ids;
  const { assistant, kwargs, metadata, multitaskStrategy, threadAccess, sender } = run;
  const own = run.stateless ?? run.threadId === undefined;
  const ttl = own && run.temporary ? undefined : run.threadTtl;
  const kwargsText = JSON.stringify(kwargs);
  const leaseToken = processId === undefined ? undefined : randomUUID();
  const [added] = await sql.query<AddedRow>(
    seenAt === undefined ? addRunSql : addRunAsSeenSql,
    [
      deploymentId,
      threadId,
      own ? 'own' : run.ifNotExists === 'create' ? 'where-missing' : 'never',
      threadAccess?.required,
      { ...run.threadMetadata, ...threadAccess?.metadata },
      // What the metadata of a thread says of its last run.
      { graph_id: assistant.graph_id, assistant_id: assistant.assistant_id },
      ttl?.minutes,
      ttl?.strategy,
      besideOthers,
      runId,
      assistant.assistant_id,
      assistant.graph_id,
      kwargsText,
      metadata,
      multitaskStrategy,
      run.temporary,
      run.afterSeconds,
      sender === undefined ? null : JSON.stringify(sender),
      leaseToken,
      processId,
      run.callerId,
      ...(seenAt === undefined ? [] : [seenAt]),
    ],
    { name: seenAt === undefined ? 'agents_add_run' : 'agents_add_run_as_seen' },
  );
  if (added === undefined) return undefined;
  const { outcome, made_at, start_number, base } = added;
  if (outcome === 'going') return outcome;
  if (outcome === 'thread-exists') throw fault('THREAD_EXISTS', { thread: threadId });
  // That there is a thread of another user is not told.
  if (outcome === 'no-thread' || outcome === 'not-yours') throw fault('THREAD_NOT_FOUND', { thread: threadId });
  const made: Run = {
    run_id: runId,
    thread_id: threadId,
    assistant_id: assistant.assistant_id,
    created_at: made_at,
    updated_at: made_at,
    status: 'pending',
    metadata,
    kwargs,
    multitask_strategy: multitaskStrategy,
  };
  if (outcome !== 'started' || leaseToken === undefined) return { run: made };
  const claimed = toClaimedRun({
    ...made,
    deployment_id: deploymentId,
    graph_id: assistant.graph_id,
    attempt: 1,
    lease_token: leaseToken,
    thread_start: start_number,
    base_checkpoint_id: base,
    alone: false,
    // As it is read by whoever takes the run up again.
    kwargs: JSON.parse(kwargsText) as RunKwargs,
    sender: sender ?? null,
    started_at: made_at,
  });
  return { run: made, claimed };
}

async function giveWay(tx: Sql, deploymentId: string, threadId: string, action: CancelAction): Promise<void> {
  const running = await tx.query<{ run_id: string }>(
    "SELECT run_id FROM agents.runs WHERE deployment_id = $1 AND thread_id = $2 AND status = 'running'",
    [deploymentId, threadId],
    { name: 'agents_running_run' },
  );
  await endWaitingRuns(tx, deploymentId, threadId, { remove: action === 'rollback' });
  for (const { run_id } of running) await askToCancel(tx, deploymentId, run_id, action);
}
