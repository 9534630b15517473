import type { Sql } from '../../../infra/postgres/database.ts';
import type { CancelAction } from './run.ts';

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

interface HeldRow {
  readonly thread_id: string;
  readonly run_id: string;
  readonly lease_token: string;
  readonly cancel_action: CancelAction | null;
}

/**
 * Renews the heartbeat of a process and reads its running runs. It locks only the row of the process, so it does not wait for
 * transactions on runs or threads. If the lease of a run is missing in the result, the process has lost it.
 */
export async function renewHeartbeat(sql: Sql, process: RunProcess, leaseMs: number): Promise<LeasedRun[]> {
  const rows = await sql.query<HeldRow>(
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

/** Deletes the heartbeat of a process that no longer holds a run, and heartbeats that expired more than a day ago. */
export async function removeHeartbeat(sql: Sql, { deploymentId, processId }: RunProcess): Promise<void> {
  await sql.execute(
    `DELETE FROM agents.processes
     WHERE deployment_id = $1 AND (process_id = $2 OR alive_until < clock_timestamp() - interval '1 day')`,
    [deploymentId, processId],
  );
}
