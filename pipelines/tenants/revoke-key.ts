import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import type { Caller } from './caller.ts';
import { type KeyRecord, keyColumns, keyTables } from './key-record.ts';

/**
 * Ends a key for good, at once in this process. Its row stays, because usage keeps its name. `workspaceId` as in `listKeys`.
 *
 * @throws NOT_FOUND where there is no such key within the caller's reach, or it is revoked already.
 */
export async function revokeKey(
  { database, authenticator }: { database: Database; authenticator: Authenticator },
  caller: Caller,
  keyId: string,
  workspaceId: string | null,
): Promise<KeyRecord> {
  const [revoked] = await database.query<KeyRecord & { hash: Buffer }>(
    `WITH revoked AS (
       UPDATE api_keys SET revoked_at = now()
       WHERE id = $1 AND organization_id = $2 AND revoked_at IS NULL
         AND ($3 OR workspace_ids <@ $4::uuid[])
         AND ($5::uuid IS NULL OR workspace_ids @> ARRAY[$5::uuid])
       RETURNING id, hash
     )
     SELECT ${keyColumns}, revoked.hash FROM ${keyTables} JOIN revoked ON revoked.id = k.id`,
    [keyId, caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], workspaceId],
  );
  if (!revoked) throw fault('NOT_FOUND', { what: 'API key' });
  const { hash, ...record } = revoked;
  authenticator.forgetKey(hash);
  return record;
}
