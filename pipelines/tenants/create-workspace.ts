import { randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { violatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import type { Caller } from './caller.ts';
import { enforceLimit } from './enforce-limit.ts';
import { type WorkspaceRecord, workspaceColumns } from './workspace-record.ts';

export interface NewWorkspace {
  readonly id?: string | undefined;
  readonly displayName: string;
  readonly handle?: string | null | undefined;
}

interface CreateDeps {
  readonly database: Database;
  readonly authenticator: Authenticator;
  readonly config: Pick<Config, 'maxWorkspaces'>;
}

const countWorkspaces = 'SELECT count(*) AS there FROM workspaces WHERE organization_id = $1 AND deleted_at IS NULL';

/** @throws CONFLICT if the id or the handle is taken, LIMIT_REACHED. */
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
      await enforceLimit(tx, caller, { most: limit, count: countWorkspaces }, () =>
        runlakeError('LIMIT_REACHED', {
          limit,
          what: 'workspaces',
          instead: 'Delete those that are not needed',
        }),
      );
      return made;
    });
    authenticator.forgetAll();
    return workspace!;
  } catch (error) {
    throw workspaceConflict(error) ?? error;
  }
}

/**
 * The CONFLICT error for a statement that failed because the id or the handle of a workspace is taken; undefined for
 * other errors.
 */
export function workspaceConflict(error: unknown): RunlakeError | undefined {
  switch (violatedConstraint(error)) {
    case 'workspaces_pkey':
      return runlakeError('CONFLICT', { reason: 'A workspace with this id already exists.' });
    case 'workspaces_by_handle':
      return runlakeError('CONFLICT', { reason: 'A workspace with this handle already exists.' });
    default:
      return undefined;
  }
}
