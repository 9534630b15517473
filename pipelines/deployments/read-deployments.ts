import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import {
  type DeploymentRecord,
  type DeploymentType,
  deploymentColumns,
  type RevisionRecord,
  revisionColumns,
} from './deployment.ts';
import type { RevisionStatus } from './states.ts';

/** Reads a deployment. @throws NOT_FOUND */
export async function readDeployment(database: Sql, workspaceId: string, id: string): Promise<DeploymentRecord> {
  const [deployment] = await database.query<DeploymentRecord>(
    `SELECT ${deploymentColumns} FROM deployments AS d WHERE d.id = $1 AND d.workspace_id = $2`,
    [id, workspaceId],
  );
  if (deployment === undefined) throw runlakeError('NOT_FOUND', { what: 'Deployment' });
  return deployment;
}

export interface DeploymentFilter {
  readonly nameContains?: string | undefined;
  readonly status?: string | undefined;
  readonly deploymentType?: DeploymentType | undefined;
  readonly ids?: readonly string[] | undefined;
}

/** Lists the deployments of a workspace, newest first. @throws ANSWER_TOO_LARGE: settings may have any JSON */
export function listDeployments(
  database: Sql,
  workspaceId: string,
  { nameContains, status, deploymentType, ids }: DeploymentFilter,
  { limit, offset }: PageRequest,
): Promise<DeploymentRecord[]> {
  return queryPageWithinLimit<DeploymentRecord>(
    database,
    `SELECT * FROM (SELECT ${deploymentColumns} FROM deployments AS d WHERE d.workspace_id = $1) AS listed
     WHERE ($2::text IS NULL OR strpos(lower(name), lower($2)) > 0) AND ($3::text IS NULL OR status = $3)
       AND ($4::text IS NULL OR "sourceConfig"->>'deployment_type' = $4) AND ($5::uuid[] IS NULL OR id = ANY ($5))
     ORDER BY "createdAt" DESC, id LIMIT $6 OFFSET $7`,
    [workspaceId, nameContains ?? null, status ?? null, deploymentType ?? null, ids ?? null, limit, offset],
    internals.maxPageBytes,
  );
}

/** Reads a revision. @throws NOT_FOUND */
export async function readRevision(
  database: Sql,
  workspaceId: string,
  deploymentId: string,
  revisionId: string,
): Promise<RevisionRecord> {
  const [revision] = await database.query<RevisionRecord>(
    `SELECT ${revisionColumns} FROM deployment_revisions AS r
     WHERE r.id = $1 AND r.deployment_id = $2 AND r.workspace_id = $3`,
    [revisionId, deploymentId, workspaceId],
  );
  if (revision === undefined) throw runlakeError('NOT_FOUND', { what: 'Revision' });
  return revision;
}

/** Lists the revisions of a deployment, newest first. @throws NOT_FOUND */
export async function listRevisions(
  database: Sql,
  workspaceId: string,
  deploymentId: string,
  { statuses, limit, offset }: PageRequest & { readonly statuses?: readonly RevisionStatus[] | undefined },
): Promise<RevisionRecord[]> {
  await readDeployment(database, workspaceId, deploymentId);
  return database.query<RevisionRecord>(
    `SELECT ${revisionColumns} FROM deployment_revisions AS r
     WHERE r.deployment_id = $1 AND r.workspace_id = $2 AND ($3::text[] IS NULL OR r.status = ANY ($3))
     ORDER BY r.number DESC LIMIT $4 OFFSET $5`,
    [deploymentId, workspaceId, statuses ?? null, limit, offset],
  );
}

/** A row of the history of a revision. */
export interface TransitionRecord {
  readonly at: string;
  readonly from: RevisionStatus | null;
  readonly to: RevisionStatus;
  readonly reason: string;
}

/** Lists the history of a revision that {@link readRevision} returned, oldest first. */
export async function listTransitions(database: Sql, { id }: Pick<RevisionRecord, 'id'>): Promise<TransitionRecord[]> {
  return database.query<TransitionRecord>(
    `SELECT at, from_status AS "from", to_status AS "to", reason FROM revision_transitions
     WHERE revision_id = $1 ORDER BY position`,
    [id],
  );
}
