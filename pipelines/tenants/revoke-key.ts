import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import { type Caller, requirePermission } from './caller.ts';
import { type KeyRecord, keyColumns, keyTables } from './key-record.ts';
import { effectivePermissions } from './permissions.ts';

/** Its parameters: key, organisation, whether the caller reaches all of it, workspaces of the caller, workspace. */
const withinReach = `id = $1 AND organization_id = $2 AND revoked_at IS NULL
  AND ($3 OR workspace_ids <@ $4::uuid[])
  AND ($5::uuid IS NULL OR workspace_ids @> ARRAY[$5::uuid])`;

/**
 * Ends a key for good, at once in this process. Its row stays, because usage keeps its name. `workspaceId` as in `listKeys`.
 *
 * A caller ends no key that may do what the caller may not: else a key made to rotate others could lock the owner out.
 *
 * @throws FORBIDDEN that names such a permission; NOT_FOUND where there is no such key within the caller's reach, or it is revoked already.
 */
export async function revokeKey(
  { database, authenticator }: { database: Database; authenticator: Authenticator },
  caller: Caller,
  keyId: string,
  workspaceId: string | null,
): Promise<KeyRecord> {
  const key = [keyId, caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], workspaceId];
  // What a key may do never changes, so it is still so when the key is ended below.
  const [held] = await database.query<{ permissions: string[]; read_only: boolean; organization_wide: boolean }>(
    `SELECT permissions, read_only, workspace_ids IS NULL AS organization_wide FROM api_keys WHERE ${withinReach}`,
    key,
  );
  if (!held) throw fault('NOT_FOUND', { what: 'API key' });
  for (const permission of effectivePermissions(held.permissions, held.read_only, held.organization_wide)) {
    requirePermission(caller, permission);
  }
  const [revoked] = await database.query<KeyRecord & { hash: Buffer }>(
    `WITH revoked AS (
       UPDATE api_keys SET revoked_at = now()
       WHERE ${withinReach}
       RETURNING id, hash
     )
     SELECT ${keyColumns}, revoked.hash FROM ${keyTables} JOIN revoked ON revoked.id = k.id`,
    key,
  );
  if (!revoked) throw fault('NOT_FOUND', { what: 'API key' });
  const { hash, ...record } = revoked;
  authenticator.forgetKey(hash);
  return record;
}
