/**
 * Makes runs.
 *
 * Invariant: what a new run does to the others of its thread is decided under the lock of the thread, once. One transaction
 *
 *   1. locks the thread, or makes it;
 *   2. does what the strategy says where a run waits or runs: refuses the new one, lets it wait, or ends those that wait and asks the
 *      one that runs to stop, so that the new one is next;
 *   3. writes the run, and settles the thread, which is busy then;
 *   4. tells those who execute runs.
 */
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
import { lockThread, settleThreadStatus } from './lock-thread.ts';
import type { MultitaskStrategy, Run, RunKwargs } from './run.ts';
import { type RunRow, type RunSender, runColumns } from './run-row.ts';

/** Which threads a run may be on, where a project's own authentication says so. */
export interface ThreadAccess {
  /** What the metadata of a thread that there is has to hold. */
  readonly required: RequiredMetadata | undefined;
  /** Metadata of a thread that is made. */
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
  readonly multitaskStrategy: MultitaskStrategy;
  readonly afterSeconds: number;
  /** Whether a thread made for it goes with it, and is not to be seen until then. */
  readonly temporary: boolean;
  readonly runId?: string;
  readonly sender?: RunSender | undefined;
  /** Default: any thread. */
  readonly threadAccess?: ThreadAccess | undefined;
  /** Of a thread that is made and stays. Default: it stays for good. */
  readonly threadTtl?: ThreadTtl | undefined;
}

/**
 * Makes a run, in the transaction that `sql` is or in one of its own.
 *
 * @throws THREAD_NOT_FOUND, AUTH_FORBIDDEN, THREAD_BUSY where the strategy is to reject, INVALID_REQUEST for metadata that cannot be stored
 */
export async function createRun(sql: Database | Sql, organizationId: string, run: NewRun): Promise<Run> {
  requireStorableJson(run.metadata, ['body', 'metadata']);
  const threadId = run.threadId ?? uuidv7();
  return withinTransaction(sql, async (tx) => {
    if (run.stateless ?? run.threadId === undefined) {
      const made = await makeThread(tx, organizationId, threadId, run, run.temporary);
      if (!made) throw fault('THREAD_EXISTS', { thread: threadId });
    } else {
      await findThread(tx, organizationId, threadId, run);
      await giveWay(tx, organizationId, threadId, run.multitaskStrategy);
      await tx.execute(
        `UPDATE agents.threads SET metadata = metadata || $3::jsonb
         WHERE organization_id = $1 AND thread_id = $2 AND NOT metadata @> $3::jsonb`,
        [organizationId, threadId, ofThread(run)],
        { name: 'agents_note_graph' },
      );
    }
    const [made] = await tx.query<RunRow>(
      `INSERT INTO agents.runs (organization_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
         temporary, due_at, sender, created_at, updated_at)
       SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, moment + $10::float8 * interval '1 second', $11, moment, moment
       FROM clock_timestamp() moment
       RETURNING ${runColumns}`,
      [
        organizationId,
        threadId,
        run.runId ?? uuidv7(),
        run.assistant.assistant_id,
        run.assistant.graph_id,
        JSON.stringify(run.kwargs),
        run.metadata,
        run.multitaskStrategy,
        run.temporary,
        run.afterSeconds,
        run.sender === undefined ? null : JSON.stringify(run.sender),
      ],
      { name: 'agents_create_run' },
    );
    await settleThreadStatus(tx, organizationId, threadId);
    await tx.execute("SELECT pg_notify('agent_runs', '')");
    return made as Run;
  });
}

async function findThread(tx: Sql, organizationId: string, threadId: string, run: NewRun): Promise<void> {
  let thread = await lockThread(tx, organizationId, threadId);
  if (thread === undefined && run.ifNotExists === 'create') {
    // Somebody else may make it at the same time.
    await makeThread(tx, organizationId, threadId, run, false);
    thread = await lockThread(tx, organizationId, threadId);
  }
  if (thread === undefined || thread.hidden) throw fault('THREAD_NOT_FOUND', { thread: threadId });
  const required = run.threadAccess?.required;
  if (required === undefined) return;
  const within = await tx.query(
    'SELECT FROM agents.threads WHERE organization_id = $1 AND thread_id = $2 AND metadata @> $3',
    [organizationId, threadId, required],
  );
  if (within.length === 0) throw fault('AUTH_FORBIDDEN', { reason: 'The thread is not yours.' });
}

async function makeThread(
  tx: Sql,
  organizationId: string,
  threadId: string,
  run: NewRun,
  hidden: boolean,
): Promise<boolean> {
  const ttl = hidden ? undefined : run.threadTtl;
  const made = await tx.execute(
    `INSERT INTO agents.threads (organization_id, thread_id, hidden, metadata, ttl_minutes, ttl_strategy, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $5 * interval '1 minute') ON CONFLICT DO NOTHING`,
    [
      organizationId,
      threadId,
      hidden,
      { ...run.threadAccess?.metadata, ...ofThread(run) },
      ttl?.minutes ?? null,
      ttl?.strategy ?? null,
    ],
    { name: 'agents_make_thread' },
  );
  return made === 1;
}

/** What the metadata of a thread says of its last run. */
function ofThread({ assistant }: NewRun): object {
  return { graph_id: assistant.graph_id, assistant_id: assistant.assistant_id };
}

async function giveWay(tx: Sql, organizationId: string, threadId: string, strategy: MultitaskStrategy): Promise<void> {
  if (strategy === 'enqueue') return;
  const going = await tx.query<{ run_id: string; status: 'pending' | 'running' }>(
    `SELECT run_id, status FROM agents.runs
     WHERE organization_id = $1 AND thread_id = $2 AND status IN ('pending', 'running')`,
    [organizationId, threadId],
    { name: 'agents_going_runs' },
  );
  if (going.length === 0) return;
  if (strategy === 'reject') throw fault('THREAD_BUSY', { thread: threadId });
  await endWaitingRuns(tx, organizationId, threadId, { remove: strategy === 'rollback' });
  for (const { run_id, status } of going) {
    if (status === 'running') await askToCancel(tx, organizationId, run_id, strategy);
  }
}
