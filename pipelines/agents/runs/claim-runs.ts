import type { Sql } from '../../../infra/postgres/database.ts';
import { type ClaimedRow, type ClaimedRun, claimedColumns, toClaimedRun } from './run-row.ts';

/**
 * Claims due runs of a deployment for a process, whose heartbeat has to be valid. None is claimed twice.
 *
 * Invariant: a thread has at most one running run, and its runs start in the order in which they are due; see `agents.claim_runs`.
 */
export async function claimRuns(
  database: Sql,
  deploymentId: string,
  { slots, processId }: { readonly slots: number; readonly processId: string },
): Promise<ClaimedRun[]> {
  const rows = await database.query<ClaimedRow>(
    `SELECT ${claimedColumns} FROM agents.claim_runs($1, $2, $3)`,
    [deploymentId, slots, processId],
    { name: 'agents_claim_runs' },
  );
  return rows.map(toClaimedRun);
}
