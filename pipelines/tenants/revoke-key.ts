import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import { type Caller, requirePermission } from './caller.ts';
import { type KeyRecord, keyColumns, keyTables } from './key-record.ts';
import { effectivePermissions } from './permissions.ts';

/**
 * Parameters: key, organisation, whether the caller has access to the whole organisation, workspaces of the caller,
 * workspace.
 */
const isRevocable = `id = $1 AND organization_id = $2 AND revoked_at IS NULL
  AND ($3 OR workspace_ids <@ $4::uuid[])
  AND ($5::uuid IS NULL OR workspace_ids @> ARRAY[$5::uuid])`;

/**
 * Revokes a key, at once in this process. Its row stays, because usage shows its name. `workspaceId` as in `listKeys`.
 *
 * A caller cannot revoke a key that has a permission the caller lacks. Otherwise a key created to rotate other keys
 * could lock out the owner.
 *
 * @throws FORBIDDEN with such a permission; NOT_FOUND if the caller has no access to such a key, or it is already revoked.
 */
export async function revokeKey(
  { database, authenticator }: { database: Database; authenticator: Authenticator },
  caller: Caller,
  keyId: string,
  workspaceId: string | null,
): Promise<KeyRecord> {
  const key = [keyId, caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], workspaceId];
  // Permissions of a key never change, so this check still holds for the UPDATE below.
  const [held] = await database.query<{ permissions: string[]; read_only: boolean; organization_wide: boolean }>(
    `SELECT permissions, read_only, workspace_ids IS NULL AS organization_wide FROM api_keys WHERE ${isRevocable}`,
    key,
  );
  if (!held) throw runlakeError('NOT_FOUND', { what: 'API key' });
  for (const permission of effectivePermissions(held.permissions, held.read_only, held.organization_wide)) {
    requirePermission(caller, permission);
  }
  const [revoked] = await database.query<KeyRecord & { hash: Buffer }>(
    `WITH revoked AS (
       UPDATE api_keys SET revoked_at = now()
       WHERE ${isRevocable}
       RETURNING id, hash
     )
     SELECT ${keyColumns}, revoked.hash FROM ${keyTables} JOIN revoked ON revoked.id = k.id`,
    key,
  );
  if (!revoked) throw runlakeError('NOT_FOUND', { what: 'API key' });
  const { hash, ...record } = revoked;
  authenticator.forgetKey(hash);
  return record;
}
