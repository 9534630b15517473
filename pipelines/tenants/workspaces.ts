import { randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { isPurgedSql } from '../projects/delete-projects.ts';
import type { Authenticator } from './authenticate.ts';
import type { Caller } from './caller.ts';
import { enforceLimit } from './enforce-limit.ts';

/** A row of `workspaces`. Times are ISO 8601 with microseconds. */
export interface WorkspaceRecord {
  readonly id: string;
  readonly organization_id: string;
  readonly created_at: string;
  readonly display_name: string;
  readonly tenant_handle: string | null;
  readonly is_deleted: boolean;
}

export const maxHandleLength = 64;

const workspaceColumns =
  'id, organization_id, created_at, display_name, tenant_handle, deleted_at IS NOT NULL AS is_deleted';

/** Finds the organisation of a workspace that is not deleted. Used for links, which contain no API key. */
export async function findOrganizationId(database: Database, workspaceId: string): Promise<string | undefined> {
  const [workspace] = await database.query<{ organization_id: string }>(
    'SELECT organization_id FROM workspaces WHERE id = $1 AND deleted_at IS NULL',
    [workspaceId],
  );
  return workspace?.organization_id;
}

/**
 * Reads a workspace.
 *
 * @throws NOT_FOUND if the caller has no access to a workspace with this id, or if the workspace is deleted.
 */
export async function readWorkspace(database: Database, caller: Caller, workspaceId: string): Promise<WorkspaceRecord> {
  const [workspace] = await database.query<WorkspaceRecord>(
    `SELECT ${workspaceColumns} FROM workspaces
     WHERE id = $1 AND organization_id = $2 AND ($3 OR id = ANY ($4::uuid[])) AND deleted_at IS NULL`,
    [workspaceId, caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds]],
  );
  if (!workspace) throw runlakeError('NOT_FOUND', { what: 'Workspace' });
  return workspace;
}

/** Lists the workspaces that the caller has access to, oldest first. */
export function listWorkspaces(
  database: Database,
  caller: Caller,
  { includeDeleted }: { includeDeleted: boolean },
): Promise<WorkspaceRecord[]> {
  return database.query<WorkspaceRecord>(
    `SELECT ${workspaceColumns} FROM workspaces
     WHERE organization_id = $1 AND ($2 OR id = ANY ($3::uuid[])) AND ($4 OR deleted_at IS NULL)
     ORDER BY created_at, id`,
    [caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], includeDeleted],
  );
}

interface NewWorkspace {
  readonly id?: string | undefined;
  readonly displayName: string;
  readonly handle?: string | null | undefined;
}

interface CreateDeps {
  readonly database: Database;
  readonly authenticator: Authenticator;
  readonly config: Pick<Config, 'maxWorkspaces'>;
}

/** Deleted workspaces count until they are purged, so that an organisation cannot queue any number of purges. */
const countWorkspacesSql = `SELECT count(*) AS count FROM workspaces WHERE organization_id = $1 AND NOT ${isPurgedSql}`;

/** Creates a workspace. @throws CONFLICT if the id or the handle is taken, LIMIT_REACHED. */
export async function createWorkspace(
  { database, authenticator, config }: CreateDeps,
  caller: Caller,
  { id = randomUUID(), displayName, handle = null }: NewWorkspace,
): Promise<WorkspaceRecord> {
  try {
    const workspace = await database.transaction(async (tx) => {
      const [made] = await tx.query<WorkspaceRecord>(
        `INSERT INTO workspaces (id, organization_id, display_name, tenant_handle) VALUES ($1, $2, $3, $4)
         RETURNING ${workspaceColumns}`,
        [id, caller.organizationId, displayName, handle],
      );
      const limit = config.maxWorkspaces;
      await enforceLimit(tx, 'organization', caller.organizationId, {
        max: limit,
        countSql: countWorkspacesSql,
        what: 'workspaces',
        hint: 'Delete those that are not needed; they count until their data is deleted, an hour later',
      });
      return made;
    });
    authenticator.forgetAll();
    return workspace!;
  } catch (error) {
    throw toWorkspaceConflict(error) ?? error;
  }
}

/**
 * Returns the CONFLICT error for a statement that failed because the id or the handle of a workspace is taken;
 * undefined for other errors.
 */
export function toWorkspaceConflict(error: unknown): RunlakeError | undefined {
  switch (getViolatedConstraint(error)) {
    case 'workspaces_pkey':
      return runlakeError('CONFLICT', { reason: 'A workspace with this id already exists.' });
    case 'workspaces_by_handle':
      return runlakeError('CONFLICT', { reason: 'A workspace with this handle already exists.' });
    default:
      return undefined;
  }
}

/** Absent and null fields stay unchanged. */
interface WorkspaceChange {
  readonly displayName?: string | null | undefined;
  readonly handle?: string | null | undefined;
}

/**
 * Changes a workspace.
 *
 * @throws NOT_FOUND if the caller has no access to a workspace with this id, or if the workspace is deleted; CONFLICT
 *   if the handle is taken.
 */
export async function updateWorkspace(
  database: Database,
  caller: Caller,
  workspaceId: string,
  { displayName = null, handle = null }: WorkspaceChange,
): Promise<WorkspaceRecord> {
  try {
    const [workspace] = await database.query<WorkspaceRecord>(
      `UPDATE workspaces SET display_name = coalesce($5, display_name), tenant_handle = coalesce($6, tenant_handle)
       WHERE id = $1 AND organization_id = $2 AND ($3 OR id = ANY ($4::uuid[])) AND deleted_at IS NULL
       RETURNING ${workspaceColumns}`,
      [
        workspaceId,
        caller.organizationId,
        caller.organizationWide,
        [...caller.readableWorkspaceIds],
        displayName,
        handle,
      ],
    );
    if (!workspace) throw runlakeError('NOT_FOUND', { what: 'Workspace' });
    return workspace;
  } catch (error) {
    throw toWorkspaceConflict(error) ?? error;
  }
}

/**
 * Deletes a workspace: requests to it fail at once, and a job deletes its data. Its row and its usage stay. A crash
 * before the job is queued leaves `purged_at` empty; the job `requeue-deletions` then queues the deletion.
 *
 * @throws NOT_FOUND if the caller has no access to a workspace with this id, or if the workspace is deleted; CONFLICT
 *   if it is the last workspace of the organisation.
 */
export async function deleteWorkspace(
  {
    database,
    authenticator,
    enqueueWorkspaceDeletion,
  }: {
    database: Database;
    authenticator: Authenticator;
    enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
  },
  caller: Caller,
  workspaceId: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    // The lock serialises deletions, so that two concurrent calls cannot delete the last two workspaces.
    await tx.query('SELECT FROM organizations WHERE id = $1 FOR UPDATE', [caller.organizationId]);
    const liveWorkspaces = await tx.query<{ id: string }>(
      'SELECT id FROM workspaces WHERE organization_id = $1 AND deleted_at IS NULL',
      [caller.organizationId],
    );
    const isAccessible = caller.organizationWide || caller.readableWorkspaceIds.has(workspaceId.toLowerCase());
    if (!isAccessible || !liveWorkspaces.some(({ id }) => id === workspaceId.toLowerCase())) {
      throw runlakeError('NOT_FOUND', { what: 'Workspace' });
    }
    if (liveWorkspaces.length === 1)
      throw runlakeError('CONFLICT', { reason: 'The last workspace of an organization cannot be deleted.' });
    await tx.execute('UPDATE workspaces SET deleted_at = now() WHERE id = $1', [workspaceId]);
  });
  authenticator.forgetAll();
  await enqueueWorkspaceDeletion(workspaceId.toLowerCase());
}

export interface WorkspaceStats {
  readonly tenant_id: string;
  readonly dataset_count: number;
  readonly tracer_session_count: number;
  readonly repo_count: number;
  readonly annotation_queue_count: number;
  readonly deployment_count: number;
  readonly evaluator_count: number;
}

const statsSql = `SELECT $1::uuid AS tenant_id,
  (SELECT count(*) FROM datasets WHERE workspace_id = $1) AS dataset_count,
  (SELECT count(*) FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL) AS tracer_session_count,
  (SELECT count(*) FROM repos WHERE workspace_id = $1) AS repo_count,
  (SELECT count(*) FROM annotation_queues WHERE workspace_id = $1) AS annotation_queue_count,
  (SELECT count(*) FROM agents.deployments WHERE workspace_id = $1 AND closed_at IS NULL) AS deployment_count,
  (SELECT count(*) FROM evaluators WHERE workspace_id = $1) AS evaluator_count`;

export async function readWorkspaceStats(
  database: Pick<Database, 'query'>,
  workspaceId: string,
): Promise<WorkspaceStats> {
  const [stats] = await database.query<WorkspaceStats>(statsSql, [workspaceId]);
  return stats!;
}
