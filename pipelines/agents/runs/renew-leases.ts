import type { Sql } from '../../../infra/postgres/database.ts';
import type { CancelAction } from './run.ts';

export interface RenewedLease {
  readonly leaseToken: string;
  /** What somebody asked for meanwhile. */
  readonly cancelAction: CancelAction | undefined;
}

/** Prolongs the leases that are still held. Those that are missing in the answer are lost: nothing may be written under them. */
export async function renewLeases(
  database: Sql,
  deploymentId: string,
  leaseTokens: readonly string[],
  leaseMs: number,
): Promise<RenewedLease[]> {
  const rows = await database.query<{ lease_token: string; cancel_action: CancelAction | null }>(
    // In the order in which everybody locks several runs, so that nobody waits for each other.
    `WITH held AS (
       SELECT run_id FROM agents.runs
       WHERE deployment_id = $1 AND lease_token = ANY ($2::uuid[]) AND status = 'running'
       ORDER BY run_id FOR UPDATE
     )
     UPDATE agents.runs run SET lease_until = clock_timestamp() + $3 * interval '1 millisecond'
     FROM held WHERE run.deployment_id = $1 AND run.run_id = held.run_id
     RETURNING run.lease_token, run.cancel_action`,
    [deploymentId, leaseTokens, leaseMs],
    { name: 'agents_renew_leases' },
  );
  return rows.map(({ lease_token, cancel_action }) => ({
    leaseToken: lease_token,
    cancelAction: cancel_action ?? undefined,
  }));
}
