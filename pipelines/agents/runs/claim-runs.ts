import type { Sql } from '../../../infra/postgres/database.ts';
import { type ClaimedRow, type ClaimedRun, claimedColumns, toClaimedRun } from './run-row.ts';

/**
 * Claims due runs of a deployment under leases of `leaseMs`, by the database's clock. None is given twice.
 *
 * Invariant: a thread has at most one running run, and its runs start in the order in which they are due; see `agents.claim_runs`.
 */
export async function claimRuns(
  database: Sql,
  deploymentId: string,
  { slots, leaseMs }: { readonly slots: number; readonly leaseMs: number },
): Promise<ClaimedRun[]> {
  const rows = await database.query<ClaimedRow>(
    `SELECT ${claimedColumns} FROM agents.claim_runs($1, $2, $3)`,
    [deploymentId, slots, leaseMs],
    { name: 'agents_claim_runs' },
  );
  return rows.map(toClaimedRun);
}
