import { createPostgresBackend, Queue, runMigrations, Worker } from 'bullmq';
import pg from 'pg';
import { postgresAddress } from '../postgres/address.ts';
import { databaseFault } from '../postgres/faults.ts';
import type { JobBackend } from './backend.ts';

/** BullMQ's tables in our database; its migrations and functions keep to it. */
const schema = 'bullmq';

/** A worker keeps one connection to listen on; the others serve all queues together. */
const sharedConnections = 4;
const connectTimeoutMs = 10_000;
export const postgresStore = { store: 'Postgres', variable: 'RUNLAKE_DATABASE_URL' } as const;

/**
 * Queues in the database. `onLoss` hears of idle connections that fail later.
 *
 * @throws DATABASE_UNAVAILABLE, ACCESS_DENIED_BY_STORE, DATABASE_QUERY_FAILED where BullMQ's own tables cannot be made.
 */
export async function openPostgresBackend(
  { url, authorities }: { readonly url: string; readonly authorities?: readonly string[] | undefined },
  kindsOfJobs: number,
  onLoss: (err: Error) => void,
): Promise<JobBackend> {
  const pool = new pg.Pool({
    ...postgresAddress(url, authorities),
    application_name: 'runlake-jobs',
    max: sharedConnections + kindsOfJobs,
    keepAlive: true,
    connectionTimeoutMillis: connectTimeoutMs,
    // BullMQ's statements name no schema, and a pool of ours is used as it is.
    onConnect: async (client) => {
      await client.query(`SET search_path = ${schema}`);
    },
  });
  // Each queue and each worker listens, too.
  pool.setMaxListeners(10 + 2 * kindsOfJobs);
  pool.on('error', (err) => {
    if (!pool.ending) onLoss(err);
  });
  try {
    const client = await pool.connect();
    try {
      // Under an advisory lock of its own, so that processes may start together.
      await runMigrations(client, schema);
    } finally {
      client.release();
    }
  } catch (raw) {
    await pool.end();
    throw databaseFault(raw);
  }
  // A pool of ours is what BullMQ takes too; its types differ from pg's by a hair.
  const connection = pool as unknown as Parameters<typeof createPostgresBackend>[1]['connection'];
  return {
    openQueue: (name) => new Queue(name, { connection }, createPostgresBackend) as unknown as Queue,
    openWorker: (name, run, limits) =>
      new Worker(name, run, { connection, ...limits }, createPostgresBackend) as unknown as Worker,
    // It loses nothing.
    onReturn: () => {},
    close: () => pool.end(),
  };
}
