import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';

export interface OrganizationRecord {
  readonly id: string;
  readonly display_name: string;
  readonly created_at: string;
}

/** The organisation of the caller's key. */
export async function readOrganization(database: Database, caller: Caller): Promise<OrganizationRecord> {
  const [organization] = await database.query<OrganizationRecord>(
    'SELECT id, display_name, created_at FROM organizations WHERE id = $1',
    [caller.organizationId],
  );
  return organization!;
}
