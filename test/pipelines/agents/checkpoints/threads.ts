import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { type EarlyAnswers, LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import { threadKey } from '../../../../pipelines/agents/checkpoints/thread-key.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { freshStores } from '../../../engines/stores.ts';

/** A run that goes on, with what its saver writes under. */
export interface GoingRun {
  readonly threadId: string;
  readonly key: string;
  readonly runId: string;
  readonly leaseToken: string;
  readonly attempt: number;
  readonly saver: LeasedSaver;
}

export type Threads = Awaited<ReturnType<typeof openThreads>>;

/**
 * A database with a deployment, and rows of threads and runs in it as the executor keeps them. Savers of runs are as
 * `earlyOf` says, one after the other; default: those who put wait.
 */
export async function openThreads(earlyOf: () => EarlyAnswers | undefined = () => undefined) {
  const stores = await freshStores();
  const { database } = stores;
  const pool = new pg.Pool({ connectionString: stores.databaseUrl, max: 8 });
  const deploymentId = await addDeployment(database);

  async function newThread(): Promise<string> {
    const threadId = randomUUID();
    await database.execute('INSERT INTO agents.threads (deployment_id, thread_id) VALUES ($1, $2)', [
      deploymentId,
      threadId,
    ]);
    return threadId;
  }

  const going = (threadId: string, runId: string, leaseToken: string, attempt: number): GoingRun => {
    const lease = { leaseToken, runId, attempt, graphId: 'graph', assistantId: 'assistant' };
    const key = threadKey(deploymentId, threadId);
    return { threadId, key, runId, leaseToken, attempt, saver: new LeasedSaver(pool, lease, earlyOf()) };
  };

  async function startRun(threadId: string): Promise<GoingRun> {
    const runId = randomUUID();
    const leaseToken = randomUUID();
    await database.execute(
      `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, status, lease_token,
         attempt)
       VALUES ($1, $2, $3, $4, 'graph', '{}', 'running', $5, 1)`,
      [deploymentId, threadId, runId, randomUUID(), leaseToken],
    );
    return going(threadId, runId, leaseToken, 1);
  }

  return {
    database,
    databaseUrl: stores.databaseUrl,
    pool,
    deploymentId,
    newThread,
    startRun,
    /** As the executor does when it takes a lost run up again. */
    startAgain: async (run: GoingRun): Promise<GoingRun> => {
      const leaseToken = randomUUID();
      await database.execute(
        `UPDATE agents.runs SET status = 'running', lease_token = $2, attempt = attempt + 1 WHERE run_id = $1`,
        [run.runId, leaseToken],
      );
      return going(run.threadId, run.runId, leaseToken, run.attempt + 1);
    },
    endRun: (run: GoingRun) =>
      database.execute(`UPDATE agents.runs SET status = 'success' WHERE run_id = $1`, [run.runId]),
    /** A saver of who holds the thread outside a run. */
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
