import type { Sql } from '../../../infra/postgres/database.ts';
import { type ClaimedRow, type ClaimedRun, claimedColumns, toClaimedRun } from './run-row.ts';

/** Free slots of the process that claims. */
export interface ClaimedRoom {
  readonly slots: number;
  /** Additional slots, only for callers that use less than their fair share. Default: 0. */
  readonly extraSlots?: number;
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
  { slots, extraSlots = 0, processId }: ClaimedRoom & { readonly processId: string },
): Promise<ClaimedRun[]> {
  const rows = await database.query<ClaimedRow>(
    `SELECT ${claimedColumns} FROM agents.claim_runs($1, $2, $3, $4)`,
    [deploymentId, slots, extraSlots, processId],
    { name: 'agents_claim_runs' },
  );
  return rows.map(toClaimedRun);
}
