import { randomUUID } from 'node:crypto';
import { runlakeError } from '../errors/runlake-error.ts';
import { settlesBeforeTimeout } from '../timeouts/with-timeout.ts';
import type { Database, Sql } from './database.ts';
import { type ListenOptions, listen } from './listen.ts';

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

/**
 * Resolves with true if a `pg_notify` of one connection arrives at another connection within `timeoutMs`. A pooler in
 * transaction mode drops notifications.
 * @throws the errors of the database.
 */
export async function checkNotifications(
  database: Database,
  at: Pick<ListenOptions, 'url' | 'authorities' | 'logger'>,
  timeoutMs: number,
): Promise<boolean> {
  const channel = `runlake_try_${randomUUID()}`;
  let received!: () => void;
  const notice = new Promise<void>((resolve) => {
    received = resolve;
  });
  const onNotice = (_channel: string, payload: string) => {
    if (payload === 'arrived') received();
  };
  const listener = await listen({ ...at, channels: [channel], onNotice });
  try {
    await database.execute('SELECT pg_notify($1, $2)', [channel, 'arrived']);
    return await settlesBeforeTimeout(notice, timeoutMs);
  } finally {
    await listener.close();
  }
}
