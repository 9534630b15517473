import { randomUUID } from 'node:crypto';
import { renewHeartbeat } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun, type NewRun } from '../../../../pipelines/agents/runs/create-run.ts';
import type { RunKwargs } from '../../../../pipelines/agents/runs/run.ts';
import { createThread } from '../../../../pipelines/agents/threads/write-threads.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { freshStores } from '../../../engines/stores.ts';

export const assistant = { assistant_id: randomUUID(), graph_id: 'echo' };
export const leaseMs = 60_000;
/** The process that claims runs in these tests; {@link openRows} keeps its heartbeat valid. */
export const processId = randomUUID();

export const kwargs = (more: Partial<RunKwargs> = {}): RunKwargs => ({
  config: {},
  stream_mode: ['values'],
  subgraphs: false,
  resumable: false,
  durability: 'async',
  temporary: false,
  ...more,
});

export const newRun = (threadId: string | undefined, more: Partial<NewRun> = {}): NewRun => ({
  assistant,
  threadId,
  ifNotExists: 'reject',
  kwargs: kwargs(more.temporary ? { temporary: true } : {}),
  metadata: {},
  multitaskStrategy: 'enqueue',
  afterSeconds: 0,
  temporary: false,
  ...more,
});

/** Opens a database with two deployments. */
export async function openRows() {
  const stores = await freshStores();
  const { database } = stores;
  const newDeployment = () => addDeployment(database);
  const [org, foreignOrg] = [await newDeployment(), await newDeployment()];
  await renewHeartbeat(database, { deploymentId: org, processId }, 3_600_000);
  return {
    stores,
    close: stores.close,
    database,
    org,
    foreignOrg,
    newDeployment,
    newThread: async (deploymentId = org) =>
      (await createThread(database, deploymentId, { metadata: {}, ifExists: 'raise' })).thread_id,
    run: (threadId: string | undefined, more: Partial<NewRun> = {}, deploymentId = org) =>
      createRun(database, deploymentId, newRun(threadId, more)),
    /** Simulates the death of the process that leases the run. */
    expire: (leaseToken: string) =>
      database.execute(
        `UPDATE agents.runs SET process_id = gen_random_uuid() WHERE lease_token = $1 AND status = 'running'`,
        [leaseToken],
      ),
    /** Returns those of the given tokens that are still valid. */
    leases: async (deploymentId: string, tokens: readonly string[]) =>
      (await renewHeartbeat(database, { deploymentId, processId }, leaseMs))
        .filter(({ leaseToken }) => tokens.includes(leaseToken))
        .map(({ leaseToken, cancelAction }) => ({ leaseToken, cancelAction })),
    /** Writes a checkpoint as a saver does. */
    checkpoint: (key: string, id: string, runId: string | null = null) =>
      database.execute(
        `INSERT INTO agents.checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata)
         VALUES ($1, '', $2, 'json', '{"channel_versions": {}}', $3)`,
        [key, id, { run_id: runId }],
      ),
    listCheckpointIds: async (key: string) =>
      (
        await database.query<{ checkpoint_id: string }>(
          'SELECT checkpoint_id FROM agents.checkpoints WHERE thread_id = $1 ORDER BY 1',
          [key],
        )
      ).map(({ checkpoint_id }) => checkpoint_id),
  };
}
