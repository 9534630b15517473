import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { createOrFind } from '../../../infra/postgres/database-error.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import { countInWorkspaces, enforceLimit } from '../../tenants/enforce-limit.ts';
import { tryDestination } from './check-destination.ts';
import {
  createDestinationNotFoundError,
  type DestinationCredentials,
  type DestinationDeps,
  type DestinationRecord,
  type DestinationType,
  destinationColumns,
  readDestination,
  sealCredentials,
} from './destination.ts';
import { type DestinationConfigInput, normaliseConfig } from './normalise-config.ts';

interface NewDestination {
  readonly type: DestinationType;
  readonly displayName: string;
  readonly config: DestinationConfigInput;
  /**
   * Credentials for the object store. If absent, the S3 client uses its default credential chain, which the operator
   * must allow.
   */
  readonly credentials?: DestinationCredentials | null | undefined;
}

const countDestinationsSql = countInWorkspaces('bulk_export_destinations', 'counted.deleted_at IS NULL');

/**
 * Writes a test object to a new destination and then creates the destination. The credentials are stored encrypted.
 *
 * @throws errors of {@link normaliseConfig} and {@link tryDestination}, BAD_REQUEST, LIMIT_REACHED.
 */
export async function createDestination(
  deps: DestinationDeps,
  workspaceId: string,
  { type, displayName, config: given, credentials: givenCredentials }: NewDestination,
): Promise<DestinationRecord> {
  const credentials = givenCredentials ?? undefined;
  if (type === 'local' && credentials !== undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'A destination of type local has no credentials.' });
  }
  const config = normaliseConfig(type, given);
  await tryDestination(deps, workspaceId, { destination_type: type, config }, credentials);
  const id = randomUUID();
  const stored = credentials && sealCredentials(deps.sealer, id, credentials);
  const insert = async (tx: Sql) => {
    const [made] = await tx.query<DestinationRecord>(
      `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials,
         credentials_keys)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING ${destinationColumns}`,
      [id, workspaceId, type, displayName, config, stored?.sealed ?? null, stored?.keys ?? []],
    );
    const limit = deps.config.exportMaxDestinations;
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
      max: limit,
      countSql: countDestinationsSql,
      what: 'destinations of bulk exports',
    });
    return made as DestinationRecord;
  };
  return createOrFind(
    () => deps.database.transaction(insert),
    () => readDestination(deps.database, workspaceId, id),
  );
}

interface DestinationChange {
  readonly displayName?: string | null | undefined;
  readonly credentials?: DestinationCredentials | null | undefined;
}

/**
 * Renames a destination or replaces its credentials, after writing a test object with the new credentials. Fields that
 * are absent or null stay unchanged. Running exports use the new credentials from their next attempt on.
 *
 * @throws NOT_FOUND, BAD_REQUEST, errors of {@link tryDestination}.
 */
export async function updateDestination(
  deps: DestinationDeps,
  workspaceId: string,
  id: string,
  change: DestinationChange,
): Promise<DestinationRecord> {
  const destination = await readDestination(deps.database, workspaceId, id);
  const credentials = change.credentials ?? undefined;
  if (credentials !== undefined) {
    if (destination.destination_type === 'local') {
      throw runlakeError('BAD_REQUEST', { reason: 'A destination of type local has no credentials.' });
    }
    await tryDestination(deps, workspaceId, destination, credentials);
  }
  // Bind the encryption to the id as stored, because the caller may have sent the id in upper case.
  const stored = credentials && sealCredentials(deps.sealer, destination.id, credentials);
  const [changed] = await deps.database.query<DestinationRecord>(
    `UPDATE bulk_export_destinations SET display_name = coalesce($3, display_name),
       sealed_credentials = coalesce($4, sealed_credentials), credentials_keys = coalesce($5, credentials_keys),
       updated_at = now()
     WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL RETURNING ${destinationColumns}`,
    [id, workspaceId, change.displayName ?? null, stored?.sealed ?? null, stored?.keys ?? null],
  );
  if (changed === undefined) throw createDestinationNotFoundError();
  return changed;
}

/**
 * Deletes a destination and its credentials. Objects in the bucket are kept. The row is locked first, as in the
 * creation of an export, so that no unfinished export loses its destination.
 *
 * @throws NOT_FOUND; DESTINATION_IN_USE while an unfinished export or schedule uses it.
 */
export async function deleteDestination(database: Database, workspaceId: string, id: string): Promise<void> {
  await database.transaction(async (tx) => {
    const [locked] = await tx.query(
      'SELECT FROM bulk_export_destinations WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL FOR UPDATE',
      [id, workspaceId],
    );
    if (locked === undefined) throw createDestinationNotFoundError();
    const [use] = await tx.query<{ exports: number }>(
      'SELECT count(*)::int AS exports FROM bulk_exports WHERE destination_id = $1 AND finished_at IS NULL',
      [id],
    );
    if (use !== undefined && use.exports > 0) throw runlakeError('DESTINATION_IN_USE', { exports: use.exports });
    await tx.execute(
      `UPDATE bulk_export_destinations SET deleted_at = now(), updated_at = now(), sealed_credentials = NULL,
         credentials_keys = '{}' WHERE id = $1`,
      [id],
    );
  });
}
