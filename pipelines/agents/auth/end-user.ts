import { v5 as uuidv5 } from 'uuid';
import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Returns the stable id under which usage counts a user of custom authentication, and stores the user's identity for
 * usage reports. Identities that differ only in NUL characters or lone surrogates, which Postgres cannot store, get the
 * same id.
 */
export async function endUserId(sql: Sql, organizationId: string, identity: string): Promise<string> {
  const name = identity.replace(/[\0\p{Surrogate}]/gu, '\u{fffd}');
  // Bytes, because the package rejects the text of a namespace that has no RFC 9562 version.
  const namespace = Buffer.from(organizationId.replaceAll('-', ''), 'hex');
  const id = uuidv5(name, namespace);
  await sql.execute(
    'INSERT INTO end_users (organization_id, id, identity) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
    [organizationId, id, name],
    { name: 'agents_note_end_user' },
  );
  return id;
}
