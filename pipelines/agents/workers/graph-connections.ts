import pg from 'pg';
import { postgresAddress } from '../../../infra/postgres/address.ts';
import type { WorkerSetup } from './worker-messages.ts';

/** The connections of a process that runs graph code, for state and store. Connects at the first statement. */
export function openConnections({ database, maxConnections }: WorkerSetup): pg.Pool | undefined {
  if (database === undefined) return undefined;
  const pool = new pg.Pool({
    ...postgresAddress(database.url, database.authorities),
    application_name: 'runlake-graphs',
    max: maxConnections,
    connectionTimeoutMillis: 10_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
  });
  // Without a listener a connection that dies while idle would end the process.
  pool.on('error', () => undefined);
  return pool;
}
