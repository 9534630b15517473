import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { type KeyRecord, keyColumns, keyTables } from './key-record.ts';

/**
 * Lists keys that are not revoked, newest first: those of `workspaceId`, or if null, all keys whose workspaces the
 * caller has access to. Keys of the whole organisation are not listed under a workspace.
 */
export function listKeys(database: Database, caller: Caller, workspaceId: string | null): Promise<KeyRecord[]> {
  return database.query<KeyRecord>(
    `SELECT ${keyColumns} FROM ${keyTables}
     WHERE k.organization_id = $1 AND k.revoked_at IS NULL
       AND ($2 OR k.workspace_ids <@ $3::uuid[])
       AND ($4::uuid IS NULL OR k.workspace_ids @> ARRAY[$4::uuid])
     ORDER BY k.created_at DESC, k.id`,
    [caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], workspaceId],
  );
}
