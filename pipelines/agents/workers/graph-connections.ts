import pg from 'pg';
import { postgresAddress } from '../../../infra/postgres/address.ts';
import type { WorkerSetup } from './worker-messages.ts';

/** Opens the connection pool of a worker process, for checkpoints and store. It connects at the first statement. */
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
  // Without a listener, the error of an idle connection would end the process.
  pool.on('error', () => undefined);
  return pool;
}
