import type { Sql } from '../../../infra/postgres/pool.ts';
import { headCheckpoint } from '../checkpoints/head-checkpoint.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import type { RunJob } from '../workers/worker-pool.ts';

/**
 * Decides where an attempt starts. The first attempt passes the input of the request. A later attempt continues from
 * the head of the thread only if this run wrote that checkpoint. Otherwise nothing of the run was stored, and the
 * attempt starts where the first one started: continuing from a head of another run would silently return the state of
 * that run.
 */
export async function startOfAttempt(database: Sql, run: ClaimedRun): Promise<RunJob['start']> {
  const { checkpoint, durability } = run.kwargs;
  if (run.attempt > 1 && durability !== 'exit') {
    const head = await headCheckpoint(database, threadKey(run.deploymentId, run.threadId));
    if (head?.runId === run.runId) return { kind: 'continue' };
  }
  if (checkpoint !== undefined) return { kind: 'input', checkpoint };
  // The claim found no checkpoint, so the worker need not look for one.
  if (run.baseCheckpointId === undefined) return { kind: 'input', checkpoint: 'none' };
  return run.attempt === 1 ? { kind: 'input' } : { kind: 'input', checkpoint: { checkpoint_id: run.baseCheckpointId } };
}
