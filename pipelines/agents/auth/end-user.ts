import { uuidv5 } from '../../../infra/ids/uuid-v5.ts';
import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * The id under which a user of a project's own authentication is counted, the same each time. Its name is kept for those who read the
 * usage. Two identities that differ only in what no text can hold are one.
 */
export async function endUserId(sql: Sql, organizationId: string, identity: string): Promise<string> {
  const name = identity.replace(/[\0\p{Surrogate}]/gu, '\u{fffd}');
  const id = uuidv5(name, organizationId);
  await sql.execute(
    'INSERT INTO end_users (organization_id, id, identity) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
    [organizationId, id, name],
    { name: 'agents_note_end_user' },
  );
  return id;
}
