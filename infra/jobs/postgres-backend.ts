import { createPostgresBackend, Queue, runMigrations, Worker } from 'bullmq';
import pg from 'pg';
import { parsePostgresAddress } from '../postgres/address.ts';
import { toDatabaseError } from '../postgres/database-error.ts';
import type { JobBackend } from './backend.ts';

/** Schema of BullMQ's tables; its migrations and functions use only this schema. */
const bullmqSchema = 'bullmq';

/** Connections that all queues share. In addition, each worker needs one connection for LISTEN. */
const sharedConnectionCount = 4;
const connectTimeoutMs = 10_000;
export const postgresStore = { store: 'Postgres', variable: 'RUNLAKE_DATABASE_URL' } as const;

/**
 * Opens queues in Postgres. `onLoss` is called when an idle connection fails later.
 *
 * @throws DATABASE_UNAVAILABLE, ACCESS_DENIED_BY_STORE, DATABASE_QUERY_FAILED if BullMQ's tables cannot be created.
 */
export async function openPostgresBackend(
  { url, authorities }: { readonly url: string; readonly authorities?: readonly string[] | undefined },
  jobKindCount: number,
  onLoss: (err: Error) => void,
): Promise<JobBackend> {
  const pool = new pg.Pool({
    ...parsePostgresAddress(url, authorities),
    application_name: 'runlake-jobs',
    max: sharedConnectionCount + jobKindCount,
    keepAlive: true,
    connectionTimeoutMillis: connectTimeoutMs,
    // BullMQ's statements do not name the schema, and BullMQ does not configure a pool that its caller created.
    onConnect: async (client) => {
      await client.query(`SET search_path = ${bullmqSchema}`);
    },
  });
  // Each queue and each worker adds listeners to the pool.
  pool.setMaxListeners(10 + 2 * jobKindCount);
  pool.on('error', (err) => {
    if (!pool.ending) onLoss(err);
  });
  try {
    const client = await pool.connect();
    try {
      // The migrations take their own advisory lock, so that several processes can start at the same time.
      await runMigrations(client, bullmqSchema);
    } finally {
      client.release();
    }
  } catch (raw) {
    await pool.end();
    throw toDatabaseError(raw);
  }
  // BullMQ accepts a pool of pg; only its type declarations differ slightly.
  const connection = pool as unknown as Parameters<typeof createPostgresBackend>[1]['connection'];
  return {
    openQueue: (name) => new Queue(name, { connection }, createPostgresBackend) as unknown as Queue,
    openWorker: (name, run, limits) =>
      new Worker(name, run, { connection, ...limits }, createPostgresBackend) as unknown as Worker,
    // Nothing to do, because Postgres does not lose data.
    onReconnect: () => {},
    close: () => pool.end(),
  };
}
