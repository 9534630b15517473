/**
 * The rows of replicas.
 *
 * Invariant: at most one host has the lease of a replica, and only that host runs it. A replica is wanted while its
 * deployment is not being deleted, and its revision is DEPLOYING, or is the active one of a deployment that is not
 * asleep. Nothing else stores what is wanted: a host stops the replicas that it holds and that are no longer wanted.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import { type RunDescription, type SourceConfig, sleepingTypes } from './deployment.ts';
import type { ReplicaName } from './driver.ts';
import { removeControls } from './mask-secrets.ts';

export interface ReplicaClaim {
  readonly revisionId: string;
  readonly number: number;
  readonly fence: number;
}

/** A claimed replica, with the data that is needed to start it. */
export interface ClaimedReplica extends ReplicaClaim, RunDescription {
  readonly deploymentId: string;
  readonly workspaceId: string;
  readonly name: string;
  readonly slug: string;
  readonly sealedSecrets: string | null;
  readonly restarts: number;
  readonly failures: number;
}

/** Condition that a replica of `deployments AS d` and `deployment_revisions AS r` is wanted. */
const wantedSql = `d.deletion_requested_at IS NULL
  AND (r.status = 'DEPLOYING' OR (d.active_revision_id = r.id AND NOT d.is_asleep))`;

export const maxReplicas = 32;

/** Number of replicas of a revision: `min_scale`, at least one. Runlake does not scale by load. */
export function countReplicas({ resource_spec: spec }: SourceConfig): number {
  return Math.min(Math.max(spec?.min_scale ?? 1, 1), maxReplicas);
}

/** Adds the rows of the replicas of a revision. Idempotent. */
export async function addReplicas(
  tx: Sql,
  {
    deploymentId,
    revisionId,
    count,
  }: { readonly deploymentId: string; readonly revisionId: string; readonly count: number },
): Promise<void> {
  await tx.execute(
    `INSERT INTO deployment_replicas (revision_id, number, deployment_id)
     SELECT $1, number, $2 FROM generate_series(1, $3::int) AS number ON CONFLICT DO NOTHING`,
    [revisionId, deploymentId, count],
  );
}

/** A host, and the time for which it holds what it claims. */
export interface HostLease {
  readonly hostId: string;
  readonly leaseMs: number;
}

/** Claims replicas that are wanted, due, and held by no host. @param limit maximum number of replicas. */
export function claimReplicas(
  database: Database,
  { hostId, leaseMs }: HostLease,
  limit: number,
): Promise<ClaimedReplica[]> {
  return database.query<ClaimedReplica>(
    `UPDATE deployment_replicas AS p SET host_id = $1, fence = p.fence + 1, url = NULL,
       lease_until = clock_timestamp() + make_interval(secs => $2)
     FROM (SELECT p.revision_id, p.number FROM deployment_replicas AS p
       JOIN deployment_revisions AS r ON r.id = p.revision_id JOIN deployments AS d ON d.id = r.deployment_id
       WHERE ${wantedSql} AND (p.lease_until IS NULL OR p.lease_until <= clock_timestamp())
         AND p.next_start_at <= clock_timestamp()
       ORDER BY p.next_start_at LIMIT $3 FOR UPDATE OF p SKIP LOCKED) AS due, deployment_revisions AS r, deployments AS d
     WHERE p.revision_id = due.revision_id AND p.number = due.number AND r.id = p.revision_id AND d.id = r.deployment_id
     RETURNING p.revision_id AS "revisionId", p.number, p.fence, d.id AS "deploymentId", d.workspace_id AS "workspaceId",
       d.name, d.slug, r.source, r.source_config AS "sourceConfig",
       r.source_revision_config AS "sourceRevisionConfig", r.sealed_secrets AS "sealedSecrets",
       r.secret_references AS "secretReferences", p.restarts, p.failures`,
    [hostId, leaseMs / 1_000, limit],
  );
}

/** A replica that a host holds, after the renewal of its lease. */
export interface HeldReplica extends ReplicaClaim {
  readonly isWanted: boolean;
}

/**
 * Renews the leases of replicas. Those that are missing in the result belong to another host now. A lease that the host
 * could not release, for example because Postgres was down, is not among them, and expires.
 */
export function renewReplicas(
  database: Sql,
  { hostId, leaseMs }: HostLease,
  claims: readonly ReplicaClaim[],
): Promise<HeldReplica[]> {
  return database.query<HeldReplica>(
    `UPDATE deployment_replicas AS p SET lease_until = clock_timestamp() + make_interval(secs => $2)
     FROM deployment_revisions AS r, deployments AS d
     WHERE p.host_id = $1 AND p.lease_until IS NOT NULL AND r.id = p.revision_id AND d.id = r.deployment_id
       AND (p.revision_id, p.number, p.fence) IN (SELECT * FROM unnest($3::uuid[], $4::int[], $5::bigint[]))
     RETURNING p.revision_id AS "revisionId", p.number, p.fence, (${wantedSql}) AS "isWanted"`,
    [
      ...[hostId, leaseMs / 1_000, claims.map((claim) => claim.revisionId)],
      ...[claims.map((claim) => claim.number), claims.map((claim) => claim.fence)],
    ],
  );
}

/** Records that a replica answers. @returns false if the host has lost it. */
export async function recordStarted(
  database: Database,
  { revisionId, number, fence }: ReplicaClaim,
  url: string,
): Promise<boolean> {
  return database.transaction(async (tx) => {
    const changed = await tx.execute(
      `UPDATE deployment_replicas SET url = $4, restarts = restarts + (started_at IS NOT NULL)::int, started_at = now(),
         transient_failures = 0
       WHERE revision_id = $1 AND number = $2 AND fence = $3`,
      [revisionId, number, fence, url],
    );
    await tx.execute("SELECT pg_notify('deployments', $1)", [revisionId]);
    return changed > 0;
  });
}

/** Records that a replica is about to stop, so that no further request finds it. */
export async function recordStopping(database: Sql, { revisionId, number, fence }: ReplicaClaim): Promise<void> {
  await database.execute(
    'UPDATE deployment_replicas SET url = NULL WHERE revision_id = $1 AND number = $2 AND fence = $3',
    [revisionId, number, fence],
  );
}

interface EndedReplica {
  readonly reason: string;
  /** Whether the cause is in the deployment. Otherwise, for example if a store is down, the failure is transient. */
  readonly isOwnFailure: boolean;
  /** Whether it answered since its last start. */
  readonly hasAnswered: boolean;
  /** Returns the time until the next start after this number of failures, with the transient ones in a row. */
  readonly computeDelayMs: (failures: number) => number;
}

/**
 * Records that a replica ended or could not be started, and when it is due again. If it responded for a minute, the
 * count of its failures restarts.
 */
export async function recordEnded(
  database: Database,
  { revisionId, number, fence }: ReplicaClaim,
  { reason, isOwnFailure, hasAnswered, computeDelayMs }: EndedReplica,
): Promise<void> {
  await database.transaction(async (tx) => {
    const [ended] = await tx.query<{ failures: number; transientFailures: number }>(
      `UPDATE deployment_replicas SET url = NULL, lease_until = NULL, host_id = NULL, last_error = $4,
         failures = $5::int
           + CASE WHEN $6 AND started_at < now() - interval '1 minute' THEN 0 ELSE failures END,
         transient_failures = CASE $5::int WHEN 0 THEN transient_failures + 1 ELSE 0 END
       WHERE revision_id = $1 AND number = $2 AND fence = $3
       RETURNING failures, transient_failures AS "transientFailures"`,
      [revisionId, number, fence, removeControls(reason), isOwnFailure ? 1 : 0, hasAnswered],
    );
    if (ended === undefined) return;
    await tx.execute(
      `UPDATE deployment_replicas SET next_start_at = clock_timestamp() + make_interval(secs => $3)
       WHERE revision_id = $1 AND number = $2`,
      [revisionId, number, computeDelayMs(ended.failures + ended.transientFailures) / 1_000],
    );
    await tx.execute("SELECT pg_notify('deployments', $1)", [revisionId]);
  });
}

/**
 * Releases a replica that the host has stopped. If it is still wanted, any host may start it at once; otherwise its row
 * is deleted, unless its revision is asleep and is started again later.
 */
export async function releaseReplica(database: Database, { revisionId, number, fence }: ReplicaClaim): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.execute(
      `UPDATE deployment_replicas SET url = NULL, lease_until = NULL, host_id = NULL, next_start_at = clock_timestamp()
       WHERE revision_id = $1 AND number = $2 AND fence = $3`,
      [revisionId, number, fence],
    );
    await deleteUnwantedReplicas(tx);
    await tx.execute("SELECT pg_notify('deployments', $1)", [revisionId]);
  });
}

/** Deletes the rows of replicas that run nowhere and that no revision needs any more. */
export async function deleteUnwantedReplicas(sql: Sql): Promise<void> {
  await sql.execute(
    `DELETE FROM deployment_replicas AS p USING deployment_revisions AS r, deployments AS d
     WHERE r.id = p.revision_id AND d.id = r.deployment_id AND (p.lease_until IS NULL OR p.lease_until <= clock_timestamp())
       AND (d.deletion_requested_at IS NOT NULL
         OR (r.status <> 'DEPLOYING' AND d.active_revision_id IS DISTINCT FROM r.id))`,
  );
}

/** The replicas that a host holds, or that one is to start: what runs of these is taken over. */
export function readNeededReplicas(database: Sql): Promise<ReplicaName[]> {
  return database.query<ReplicaName>(
    `SELECT p.deployment_id AS "deploymentId", p.revision_id AS "revisionId", p.number FROM deployment_replicas AS p
     JOIN deployment_revisions AS r ON r.id = p.revision_id JOIN deployments AS d ON d.id = r.deployment_id
     WHERE p.lease_until > clock_timestamp() OR (${wantedSql})`,
    [],
  );
}

/** What hosts keep on disk. */
export interface NeededFolders {
  /** Ids of the revisions whose builds are needed: the newest ones, and those that serve or may serve. */
  readonly builds: ReadonlySet<string>;
  /** Ids of the workspaces whose package caches are needed: those with deployments. */
  readonly workspaces: ReadonlySet<string>;
}

export async function readNeededFolders(database: Sql): Promise<NeededFolders> {
  const builds = await database.query<{ id: string }>(
    `SELECT r.id FROM deployment_revisions AS r JOIN deployments AS d ON d.id = r.deployment_id
     WHERE r.id = d.active_revision_id OR r.id = d.latest_revision_id
       OR r.id IN (SELECT revision_id FROM deployment_replicas)`,
    [],
  );
  const workspaces = await database.query<{ id: string }>('SELECT DISTINCT workspace_id AS id FROM deployments', []);
  return { builds: new Set(builds.map(({ id }) => id)), workspaces: new Set(workspaces.map(({ id }) => id)) };
}

export interface ReplicaProgress {
  readonly total: number;
  /** Replicas that answer. Those of a killed host do not count any more when its lease has expired. */
  readonly answering: number;
  /** Highest number of failures of any replica. */
  readonly failures: number;
  readonly lastError: string | null;
}

export async function readProgress(database: Sql, revisionId: string): Promise<ReplicaProgress> {
  const [progress] = await database.query<ReplicaProgress>(
    `SELECT count(*) AS total, count(url) FILTER (WHERE lease_until > clock_timestamp()) AS answering,
       coalesce(max(failures), 0) AS failures,
       max(last_error) AS "lastError" FROM deployment_replicas WHERE revision_id = $1`,
    [revisionId],
  );
  return progress as ReplicaProgress;
}

/** Frees everything that earlier processes held. Call it only if no other host can exist. */
export async function freeAllLeases(database: Sql): Promise<void> {
  await database.execute('UPDATE deployment_replicas SET lease_until = NULL, host_id = NULL, url = NULL');
  await database.execute('UPDATE deployment_revisions SET lease_until = NULL, host_id = NULL');
}

export interface ReplicaAddress {
  readonly deploymentId: string;
  readonly url: string;
}

/** Reads the addresses at which a deployment answers: of its active revision, otherwise of any. */
export function readReplicaAddresses(
  database: Sql,
  slug: string,
): Promise<(ReplicaAddress & { readonly isActive: boolean })[]> {
  return database.query(
    `SELECT d.id AS "deploymentId", p.url, d.active_revision_id = p.revision_id AS "isActive"
     FROM deployments AS d JOIN deployment_replicas AS p ON p.deployment_id = d.id
     WHERE d.slug = $1 AND d.deletion_requested_at IS NULL AND NOT d.is_asleep AND p.url IS NOT NULL AND p.lease_until > clock_timestamp()
     ORDER BY p.number`,
    [slug],
  );
}

/** A deployment that is found by its slug. */
export interface AddressedDeployment {
  readonly id: string;
  readonly workspaceId: string;
  readonly isAsleep: boolean;
  /**
   * Whether its replica has not failed, and a host starts or drains it, or the deployment was used in the last minute: it
   * has been woken, or moves to another host.
   */
  readonly isStarting: boolean;
}

/** Returns the deployment with this slug. @throws NOT_FOUND */
export async function requireSlug(database: Sql, slug: string): Promise<AddressedDeployment> {
  const [deployment] = await database.query<AddressedDeployment>(
    `SELECT id, workspace_id AS "workspaceId", is_asleep AS "isAsleep",
       EXISTS (SELECT FROM deployment_replicas WHERE revision_id = active_revision_id AND failures = 0
         AND (last_used_at > now() - interval '1 minute' OR lease_until > clock_timestamp())) AS "isStarting"
     FROM deployments WHERE slug = $1 AND deletion_requested_at IS NULL`,
    [slug],
  );
  if (deployment === undefined) throw runlakeError('NOT_FOUND', { what: 'Deployment' });
  return deployment;
}

/**
 * Condition that the deployment `d` has, or may have, something to do without a request. Images have their runs and crons
 * in stores of their own.
 */
const hasWorkSql = `(d.source NOT IN ('github', 'internal_source')
  OR EXISTS (SELECT FROM agents.runs WHERE deployment_id = d.id AND status IN ('pending', 'running'))
  OR EXISTS (SELECT FROM agents.crons WHERE deployment_id = d.id AND enabled AND next_run_date IS NOT NULL)
  OR EXISTS (SELECT FROM agents.webhooks WHERE deployment_id = d.id AND given_up_at IS NULL))`;

/**
 * Puts deployments of other types than prod to sleep that had no request for `afterMinutes` and have nothing to do.
 * Their replicas are then no longer wanted. The next request wakes them (`find-replica-url.ts`), and so does work that a
 * replica has accepted while it stopped.
 */
export async function reconcileSleep(database: Sql, afterMinutes: number): Promise<void> {
  await database.execute(
    `UPDATE deployments AS d SET is_asleep = NOT d.is_asleep
     WHERE CASE WHEN d.is_asleep THEN ${hasWorkSql}
       ELSE d.active_revision_id IS NOT NULL AND d.source_config->>'deployment_type' = ANY ($2)
         AND d.last_used_at < now() - make_interval(mins => $1) AND NOT ${hasWorkSql} END`,
    [afterMinutes, sleepingTypes],
  );
}
