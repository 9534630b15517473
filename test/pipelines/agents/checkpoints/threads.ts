import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { buildThreadKey } from '../../../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { type EarlyAckOptions, LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { freshStores } from '../../../engines/stores.ts';

/** A run in progress, with the thread key and lease that its saver uses for writes. */
export interface ActiveRun {
  readonly threadId: string;
  readonly key: string;
  readonly runId: string;
  readonly leaseToken: string;
  readonly attempt: number;
  readonly saver: LeasedSaver;
}

export type Threads = Awaited<ReturnType<typeof openThreads>>;

/**
 * Opens a database with a deployment, and creates rows of threads and runs as the executor does. Each new saver gets
 * the next `getEarlyAcks`; by default every write waits for Postgres.
 */
export async function openThreads(getEarlyAcks: () => EarlyAckOptions | undefined = () => undefined) {
  const stores = await freshStores();
  const { database } = stores;
  const pool = new pg.Pool({ connectionString: stores.databaseUrl, max: 8 });
  // A pool that closes does not wait for its sockets, and its database is dropped directly afterwards.
  pool.on('error', (error) => {
    if (!pool.ending) throw error;
  });
  const deploymentId = await addDeployment(database);

  async function newThread(): Promise<string> {
    const threadId = randomUUID();
    await database.execute('INSERT INTO agents.threads (deployment_id, thread_id) VALUES ($1, $2)', [
      deploymentId,
      threadId,
    ]);
    return threadId;
  }

  const activeRun = (threadId: string, runId: string, leaseToken: string, attempt: number): ActiveRun => {
    const key = buildThreadKey(deploymentId, threadId);
    const lease = { leaseToken, threadKey: key, runId, attempt, graphId: 'graph', assistantId: 'assistant' };
    return { threadId, key, runId, leaseToken, attempt, saver: new LeasedSaver(pool, lease, getEarlyAcks()) };
  };

  async function startRun(threadId: string): Promise<ActiveRun> {
    const runId = randomUUID();
    const leaseToken = randomUUID();
    await database.execute(
      `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, status, lease_token,
         attempt)
       VALUES ($1, $2, $3, $4, 'graph', '{}', 'running', $5, 1)`,
      [deploymentId, threadId, runId, randomUUID(), leaseToken],
    );
    return activeRun(threadId, runId, leaseToken, 1);
  }

  return {
    database,
    databaseUrl: stores.databaseUrl,
    pool,
    deploymentId,
    newThread,
    startRun,
    /** Starts the next attempt, as the executor does when it requeues a lost run. */
    startAgain: async (run: ActiveRun): Promise<ActiveRun> => {
      const leaseToken = randomUUID();
      await database.execute(
        `UPDATE agents.runs SET status = 'running', lease_token = $2, attempt = attempt + 1 WHERE run_id = $1`,
        [run.runId, leaseToken],
      );
      return activeRun(run.threadId, run.runId, leaseToken, run.attempt + 1);
    },
    endRun: (run: ActiveRun) =>
      database.execute(`UPDATE agents.runs SET status = 'success' WHERE run_id = $1`, [run.runId]),
    /** Returns a saver with a lease of the thread, outside a run. */
    leaseThread: async (threadId: string): Promise<LeasedSaver> => {
      const leaseToken = randomUUID();
      await database.execute(
        `UPDATE agents.threads SET write_token = $2, write_until = now() + interval '1 hour' WHERE thread_id = $1`,
        [threadId, leaseToken],
      );
      return new LeasedSaver(pool, { leaseToken });
    },
    rowsOf: async (key: string) =>
      (
        await database.query<{ checkpoints: number; blobs: number; writes: number }>(
          `SELECT (SELECT count(*) FROM agents.checkpoints WHERE thread_id = $1) AS checkpoints,
             (SELECT count(*) FROM agents.checkpoint_blobs WHERE thread_id = $1) AS blobs,
             (SELECT count(*) FROM agents.checkpoint_writes WHERE thread_id = $1) AS writes`,
          [key],
        )
      )[0]!,
    close: async () => {
      await pool.end();
      await stores.close();
    },
  };
}
