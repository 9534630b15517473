import type { Sql } from '../../../infra/postgres/database.ts';
import { type ClaimedRow, type ClaimedRun, claimedColumns, toClaimedRun } from './run-row.ts';

/** Room for runs in a process. */
export interface ClaimedRoom {
  readonly slots: number;
  /** Further ones, only for callers that hold less than their share. */
  readonly extraSlots?: number;
}

/**
 * Claims due runs of a deployment for a process, whose heartbeat has to be valid. None is claimed twice. The caller with the fewest
 * running runs is served first.
 *
 * Invariant: a thread has at most one running run, and its runs start in the order in which they are due; see `agents.claim_runs`.
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
