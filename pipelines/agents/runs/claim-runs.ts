import type { Database } from '../../../infra/postgres/database.ts';
import type { RunKwargs } from './run.ts';
import type { ClaimedRun, RunSender } from './run-row.ts';

export type { ClaimedRun } from './run-row.ts';

interface ClaimedRow {
  readonly organization_id: string;
  readonly thread_id: string;
  readonly run_id: string;
  readonly assistant_id: string;
  readonly graph_id: string;
  readonly attempt: number;
  readonly lease_token: string;
  readonly thread_start: number;
  readonly base_checkpoint_id: string | null;
  readonly alone: boolean;
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly sender: RunSender | null;
  readonly started_at: string;
}

/**
 * Claims of runs.
 *
 * Invariant: a thread has at most one running run, and its runs start in the order in which they are due. One transaction
 *
 *   1. locks the threads whose first waiting run has been due the longest, past those that somebody else has locked. Their rows say
 *      so themselves (`next_due_at`), so that one which changed before the lock was had is looked at anew;
 *   2. starts the first waiting run of each. This statement sees what was committed before the locks were had.
 *
 * Nothing but threads with a run to start is looked at, however many runs have ended or wait behind another.
 */
const lockHeads = `
SELECT thread_id FROM agents.threads
WHERE organization_id = $1 AND next_due_at <= clock_timestamp() AND (write_until IS NULL OR write_until <= clock_timestamp())
ORDER BY next_due_at
LIMIT $2
FOR UPDATE SKIP LOCKED`;

const startHeads = `
WITH started AS (
  UPDATE agents.threads SET starts = starts + 1, next_due_at = NULL
  WHERE organization_id = $1 AND thread_id = ANY ($2::uuid[])
  RETURNING organization_id, thread_id, starts
)
UPDATE agents.runs run SET
  status = 'running',
  attempt = run.attempt + 1,
  thread_start = started.starts,
  lease_token = gen_random_uuid(),
  lease_until = clock_timestamp() + $3 * interval '1 millisecond',
  started_at = coalesce(run.started_at, clock_timestamp()),
  updated_at = clock_timestamp(),
  base_checkpoint_id = CASE WHEN run.attempt > 0 THEN run.base_checkpoint_id ELSE (
    SELECT checkpoint_id FROM agents.checkpoints checkpoint
    WHERE checkpoint.thread_id = run.organization_id || ':' || run.thread_id AND checkpoint.checkpoint_ns = ''
    ORDER BY checkpoint_id DESC LIMIT 1
  ) END
FROM started CROSS JOIN LATERAL (
  SELECT run_id FROM agents.runs waiting
  WHERE waiting.organization_id = started.organization_id AND waiting.thread_id = started.thread_id
    AND waiting.status = 'pending'
  ORDER BY due_at, place LIMIT 1
) head
WHERE run.organization_id = started.organization_id AND run.run_id = head.run_id
RETURNING run.organization_id, run.thread_id, run.run_id, run.assistant_id, run.graph_id, run.attempt, run.lease_token,
  run.thread_start, run.base_checkpoint_id, run.alone, run.kwargs, run.metadata, run.sender, run.started_at`;

/** Claims due runs of an organisation under leases of `leaseMs`, by the database's clock. None is given twice. */
export async function claimRuns(
  database: Database,
  organizationId: string,
  { slots, leaseMs }: { readonly slots: number; readonly leaseMs: number },
): Promise<ClaimedRun[]> {
  const rows = await database.transaction(async (tx) => {
    const heads = await tx.query<{ thread_id: string }>(lockHeads, [organizationId, slots], {
      name: 'agents_lock_heads',
    });
    if (heads.length === 0) return [];
    const threadIds = heads.map(({ thread_id }) => thread_id);
    return tx.query<ClaimedRow>(startHeads, [organizationId, threadIds, leaseMs], { name: 'agents_start_heads' });
  });
  return rows.map((row) => ({
    organizationId: row.organization_id,
    threadId: row.thread_id,
    runId: row.run_id,
    assistantId: row.assistant_id,
    graphId: row.graph_id,
    attempt: row.attempt,
    leaseToken: row.lease_token,
    threadStart: row.thread_start,
    baseCheckpointId: row.base_checkpoint_id ?? undefined,
    alone: row.alone,
    kwargs: row.kwargs,
    metadata: row.metadata,
    ...(row.sender && { sender: row.sender }),
    startedAt: row.started_at,
  }));
}
