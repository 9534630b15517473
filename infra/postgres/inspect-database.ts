import { runlakeError } from '../errors/runlake-error.ts';
import type { Sql } from './database.ts';

/**
 * Checks that the user has the permissions that Runlake needs: to create tables, and a schema for the job queues.
 * @throws PART_UNUSABLE with the missing permission.
 */
export async function inspectDatabaseRights(database: Sql): Promise<void> {
  const [row] = await database.query<
    Record<'user' | 'database' | 'schema', string> & Record<'tables' | 'schemas', boolean>
  >(
    `SELECT current_user AS user, current_database() AS database, coalesce(current_schema(), 'public') AS schema,
       has_schema_privilege(coalesce(current_schema(), 'public'), 'CREATE') AS tables,
       has_database_privilege(current_database(), 'CREATE') OR to_regnamespace('bullmq') IS NOT NULL AS schemas`,
  );
  if (row === undefined || (row.tables && row.schemas)) return;
  const [right, on] = row.tables ? ['CREATE', `DATABASE ${row.database}`] : ['CREATE', `SCHEMA ${row.schema}`];
  throw runlakeError('PART_UNUSABLE', {
    reason: `The Postgres user ${row.user} lacks the privilege ${right} on ${on.toLowerCase()}`,
    remedy: `Run as its owner: GRANT ${right} ON ${on} TO ${row.user}`,
  });
}

/** Returns the current time of Postgres, in milliseconds since 1970. */
export async function databaseClockMs(database: Sql): Promise<number> {
  const [row] = await database.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
  );
  return Number(row?.ms);
}
