import type { Sql } from '../../../infra/postgres/database.ts';
import type { RunKwargs } from './run.ts';
import type { ClaimedRun, RunSender } from './run-row.ts';

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
 * Claims due runs of an organisation under leases of `leaseMs`, by the database's clock. None is given twice.
 *
 * Invariant: a thread has at most one running run, and its runs start in the order in which they are due; see `agents.claim_runs`.
 */
export async function claimRuns(
  database: Sql,
  organizationId: string,
  { slots, leaseMs }: { readonly slots: number; readonly leaseMs: number },
): Promise<ClaimedRun[]> {
  const rows = await database.query<ClaimedRow>(
    `SELECT organization_id, thread_id, run_id, assistant_id, graph_id, attempt, lease_token, thread_start, base_checkpoint_id, alone,
       kwargs, metadata, sender, started_at
     FROM agents.claim_runs($1, $2, $3)`,
    [organizationId, slots, leaseMs],
    { name: 'agents_claim_runs' },
  );
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
