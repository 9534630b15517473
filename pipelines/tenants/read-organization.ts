import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { isOperator } from './operator.ts';

export interface OrganizationRecord {
  readonly id: string;
  readonly display_name: string;
  readonly created_at: string;
}

export interface ListedOrganization extends OrganizationRecord {
  /** Null: not deleted. */
  readonly deleted_at: string | null;
  readonly workspaces: number;
  /** Deleted workspaces whose data was deleted. */
  readonly purged_workspaces: number;
}

/** The organisation of the caller's key. */
export async function readOrganization(database: Database, caller: Caller): Promise<OrganizationRecord> {
  const [organization] = await database.query<OrganizationRecord>(
    'SELECT id, display_name, created_at FROM organizations WHERE id = $1',
    [caller.organizationId],
  );
  return organization!;
}

/** Select list of a {@link ListedOrganization} from `organizations o`. */
export const listedColumns = `o.id, o.display_name, o.created_at, o.deleted_at,
  (SELECT count(*) FROM workspaces WHERE organization_id = o.id AND (deleted_at IS NULL OR o.deleted_at IS NOT NULL)) AS workspaces,
  (SELECT count(*) FROM workspaces WHERE organization_id = o.id AND o.deleted_at IS NOT NULL AND purged_at IS NOT NULL)
    AS purged_workspaces`;

/** All organisations if the caller is the operator, otherwise only the caller's; oldest first. */
export async function listOrganizations(
  database: Database,
  caller: Caller,
  { includeDeleted = false }: { readonly includeDeleted?: boolean } = {},
): Promise<ListedOrganization[]> {
  const all = caller.permissions.has('organizations:manage') && (await isOperator(database, caller));
  return database.query<ListedOrganization>(
    `SELECT ${listedColumns} FROM organizations o
     WHERE ($1 OR o.id = $2) AND ($3 OR o.deleted_at IS NULL) ORDER BY o.created_at, o.id`,
    [all, caller.organizationId, includeDeleted],
  );
}
