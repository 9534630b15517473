import type { Sql } from '../../../infra/postgres/database.ts';
import type { CancelAction } from './run.ts';
import { type ClaimedRow, type ClaimedRun, claimedColumns, toClaimedRun } from './run-row.ts';

/** Free slots of the process that claims runs. */
export interface ClaimCapacity {
  readonly slots: number;
  /** Additional slots for callers that use less than their fair share. Default: 0. */
  readonly extraSlots?: number;
}

interface Claimant {
  readonly processId: string;
  /**
   * The revision whose code the process executes. It claims runs only while this revision is the active one of the
   * deployment, so that no run starts with the code of another revision. Unset: always.
   */
  readonly revisionId?: string | undefined;
}

/**
 * Claims due runs of a deployment for a process. The heartbeat of the process must be valid. Each run is claimed by one
 * process, and runs of the caller with the fewest running runs come first.
 *
 * Invariant: a thread has at most one running run, and its runs start in the order in which they are due; see
 * `agents.claim_runs`.
 */
export async function claimRuns(
  database: Sql,
  deploymentId: string,
  { slots, extraSlots = 0, processId, revisionId }: ClaimCapacity & Claimant,
): Promise<ClaimedRun[]> {
  const params = [deploymentId, slots, extraSlots, processId];
  const rows =
    revisionId === undefined
      ? await database.query<ClaimedRow>(`SELECT ${claimedColumns} FROM agents.claim_runs($1, $2, $3, $4)`, params, {
          name: 'agents_claim_runs',
        })
      : await database.query<ClaimedRow>(
          `SELECT ${claimedColumns} FROM
             (SELECT count(*)::int AS active FROM deployments WHERE id = $1 AND active_revision_id = $5) AS gate,
             agents.claim_runs($1, $2 * gate.active, $3 * gate.active, $4)`,
          [...params, revisionId],
          { name: 'agents_claim_runs_of_revision' },
        );
  return rows.map(toClaimedRun);
}

/**
 * Returns the milliseconds until the next run becomes due; 0 or less if a run became due in the last `sinceMs`, and
 * undefined if there is no run to consider. Considers only the first pending run of each thread without a running run.
 * Call it only after a claim with free slots returned nothing: other processes have then locked the runs that became
 * due earlier.
 */
export async function getMsToNextRun(
  database: Sql,
  deploymentId: string,
  sinceMs: number,
): Promise<number | undefined> {
  const [row] = await database.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM least(
       (SELECT min(next_due_at) FROM agents.threads
        WHERE deployment_id = $1 AND next_caller_id IS NULL AND next_due_at > now() - $2 * interval '1 millisecond'),
       (SELECT min(next_due_at) FROM agents.threads
        WHERE deployment_id = $1 AND next_caller_id IS NOT NULL AND next_due_at > now() - $2 * interval '1 millisecond')
     ) - now()) * 1000)::float8 AS ms`,
    [deploymentId, sinceMs],
    { name: 'agents_next_due' },
  );
  return row?.ms ?? undefined;
}

/** A process of a deployment that executes runs. */
export interface RunProcess {
  readonly deploymentId: string;
  readonly processId: string;
}

/** A running run of a process, with its lease. */
export interface LeasedRun {
  readonly threadId: string;
  readonly runId: string;
  readonly leaseToken: string;
  /** The cancellation that was requested, if any. */
  readonly cancelAction: CancelAction | undefined;
}

interface LeasedRow {
  readonly thread_id: string;
  readonly run_id: string;
  readonly lease_token: string;
  readonly cancel_action: CancelAction | null;
}

/**
 * Renews the heartbeat of a process and reads its running runs. The statement locks only the row of the process, so it
 * does not wait for transactions on runs or threads. If a lease is missing from the result, the process has lost it.
 */
export async function renewHeartbeat(sql: Sql, process: RunProcess, leaseMs: number): Promise<LeasedRun[]> {
  const rows = await sql.query<LeasedRow>(
    `WITH beat AS (
       INSERT INTO agents.processes (process_id, deployment_id, alive_until)
       VALUES ($2, $1, clock_timestamp() + $3 * interval '1 millisecond')
       ON CONFLICT (process_id) DO UPDATE SET alive_until = excluded.alive_until
     )
     SELECT thread_id, run_id, lease_token, cancel_action FROM agents.runs
     WHERE deployment_id = $1 AND process_id = $2 AND status = 'running'`,
    [process.deploymentId, process.processId, leaseMs],
    { name: 'agents_heartbeat' },
  );
  return rows.map((row) => ({
    threadId: row.thread_id,
    runId: row.run_id,
    leaseToken: row.lease_token,
    cancelAction: row.cancel_action ?? undefined,
  }));
}

/**
 * Counts the uptime of the deployment since the last call of this process. Returns the `since` of the next call; the
 * first call passes undefined. See `agents.count_uptime`.
 */
export async function countUptime(
  sql: Sql,
  { deploymentId, since, leaseMs }: { deploymentId: string; since: string | undefined; leaseMs: number },
): Promise<string | undefined> {
  const [row] = await sql.query<{ until: string }>(
    "SELECT agents.count_uptime($1, $2::timestamptz, $3 * interval '1 millisecond')::text AS until",
    [deploymentId, since ?? null, leaseMs],
  );
  return row?.until;
}

/** Deletes the heartbeat of a process that no longer holds a run, and heartbeats that expired more than a day ago. */
export async function removeHeartbeat(sql: Sql, { deploymentId, processId }: RunProcess): Promise<void> {
  await sql.execute(
    `DELETE FROM agents.processes
     WHERE deployment_id = $1 AND (process_id = $2 OR alive_until < clock_timestamp() - interval '1 day')`,
    [deploymentId, processId],
  );
}
