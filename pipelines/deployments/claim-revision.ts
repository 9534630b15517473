/**
 * Claims of hosts on unfinished revisions.
 *
 * Invariant: the holder of the latest fencing token is the only host that changes a revision. A claim increments the
 * token; so does a newer revision that ends this one.
 */
import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import type { RunDescription } from './deployment.ts';
import type { HostLease } from './replicas.ts';
import { type RevisionClaim, type RevisionStatus, unfinishedStatuses } from './states.ts';

export interface ClaimedRevision extends RevisionClaim, RunDescription {
  readonly deploymentId: string;
  readonly workspaceId: string;
  readonly status: RevisionStatus;
  /**
   * Number of claims in this status, with this one. More than one: the host of an earlier claim was killed, or Postgres
   * refused its result.
   */
  readonly attempts: number;
  readonly sealedSecrets: string | null;
}

/** SQL condition that a revision waits for a build slot or has one. */
const needsSlot = (revision: string) => `${revision}.status IN ('AWAITING_BUILD', 'BUILDING')`;

/**
 * Claims the oldest unfinished revision that no host holds. A build slot goes to the organisation that has the fewest;
 * of several, to any of them, so that none starves the others with a long queue.
 *
 * @param canBuild whether the host has a free build slot; otherwise revisions that wait for one are left out.
 */
export async function claimRevision(
  database: Database,
  { hostId, leaseMs }: HostLease,
  { canBuild }: { readonly canBuild: boolean },
): Promise<ClaimedRevision | undefined> {
  const statuses = unfinishedStatuses.filter(
    (status) => canBuild || (status !== 'AWAITING_BUILD' && status !== 'BUILDING'),
  );
  const [claimed] = await database.query<ClaimedRevision>(
    `WITH building AS (SELECT d.organization_id, count(*) AS builds
       FROM deployment_revisions AS r JOIN deployments AS d ON d.id = r.deployment_id
       WHERE ${needsSlot('r')} AND r.lease_until > clock_timestamp() GROUP BY d.organization_id)
     UPDATE deployment_revisions AS r SET host_id = $1, fence = fence + 1, attempts = attempts + 1,
       lease_until = clock_timestamp() + make_interval(secs => $2)
     WHERE id = (SELECT due.id FROM deployment_revisions AS due JOIN deployments AS d ON d.id = due.deployment_id
         LEFT JOIN building ON building.organization_id = d.organization_id
       WHERE due.status = ANY ($3) AND (due.lease_until IS NULL OR due.lease_until <= clock_timestamp())
       ORDER BY CASE WHEN ${needsSlot('due')} THEN coalesce(building.builds, 0) ELSE -1 END,
         CASE WHEN ${needsSlot('due')} THEN hashtext($4 || d.organization_id::text) END,
         due.created_at, due.id
       LIMIT 1 FOR UPDATE OF due SKIP LOCKED)
     RETURNING id AS "revisionId", deployment_id AS "deploymentId", workspace_id AS "workspaceId", status, fence, attempts,
       source, source_config AS "sourceConfig", source_revision_config AS "sourceRevisionConfig",
       sealed_secrets AS "sealedSecrets", secret_references AS "secretReferences"`,
    [hostId, leaseMs / 1_000, statuses, randomUUID()],
  );
  return claimed;
}

/** A host claims a new revision within a second. After this time, there is probably no host. */
export const maxUnclaimedSeconds = 30;

/** Checks that hosts claim new revisions. @throws PART_UNUSABLE */
export async function inspectUnclaimedRevisions(database: Pick<Database, 'query'>): Promise<string> {
  const [found] = await database.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM deployment_revisions
     WHERE status = 'CREATING' AND fence = 0 AND created_at < now() - make_interval(secs => $1)`,
    [maxUnclaimedSeconds],
  );
  const count = found?.count ?? 0;
  if (count === 0) return 'no revision waits for a host';
  throw runlakeError('PART_UNUSABLE', {
    reason: `no host has claimed ${count === 1 ? 'a new revision' : `${count} new revisions`}`,
    remedy: 'Start a process that hosts deployments: `runlake all`, or `runlake agents` without RUNLAKE_AGENTS_FILE.',
  });
}

/**
 * Renews the leases of claims. A lease that the host could not release is not among them, and expires.
 *
 * @returns the claims that the host still holds.
 */
export function renewRevisions(
  database: Sql,
  { hostId, leaseMs }: HostLease,
  claims: readonly RevisionClaim[],
): Promise<RevisionClaim[]> {
  return database.query<RevisionClaim>(
    `UPDATE deployment_revisions SET lease_until = clock_timestamp() + make_interval(secs => $2)
     WHERE host_id = $1 AND lease_until IS NOT NULL
       AND (id, fence) IN (SELECT * FROM unnest($3::uuid[], $4::bigint[])) RETURNING id AS "revisionId", fence`,
    [hostId, leaseMs / 1_000, claims.map(({ revisionId }) => revisionId), claims.map(({ fence }) => fence)],
  );
}

/**
 * Releases a revision, so that another host continues it at once.
 *
 * @param options `isAttempt`: the claim counts as an attempt, as if its host had been killed.
 */
export async function releaseRevision(
  database: Sql,
  { revisionId, fence }: RevisionClaim,
  { isAttempt }: { readonly isAttempt: boolean },
): Promise<void> {
  await database.execute(
    `UPDATE deployment_revisions SET lease_until = NULL, host_id = NULL, attempts = greatest(attempts - $3::int, 0)
     WHERE id = $1 AND fence = $2`,
    [revisionId, fence, isAttempt ? 0 : 1],
  );
}
