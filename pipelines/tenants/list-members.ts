import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';

export interface MemberRecord {
  readonly id: string;
  readonly organization_id: string;
  readonly created_at: string;
  readonly email: string;
  readonly full_name: string | null;
}

/** The users of the caller's organisation, oldest first. */
export function listMembers(database: Database, caller: Caller): Promise<MemberRecord[]> {
  return database.query<MemberRecord>(
    `SELECT id, organization_id, created_at, email, full_name FROM users
     WHERE organization_id = $1 AND removed_at IS NULL ORDER BY created_at, id`,
    [caller.organizationId],
  );
}
