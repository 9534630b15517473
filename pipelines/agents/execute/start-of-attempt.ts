import type { Sql } from '../../../infra/postgres/pool.ts';
import { headCheckpoint } from '../checkpoints/head-checkpoint.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import type { RunJob } from '../workers/worker-pool.ts';

/**
 * Where an attempt begins. The first one puts in what was asked. A later one goes on from the head of the thread only where that
 * checkpoint is this run's own; else nothing of the run was stored, and it begins once more from where the first one began:
 * going on from a head that is another run's would silently return that run's state.
 */
export async function startOfAttempt(database: Sql, run: ClaimedRun): Promise<RunJob['start']> {
  const { checkpoint, durability } = run.kwargs;
  if (run.attempt > 1 && durability !== 'exit') {
    const head = await headCheckpoint(database, threadKey(run.deploymentId, run.threadId));
    if (head?.runId === run.runId) return { kind: 'continue' };
  }
  if (checkpoint !== undefined) return { kind: 'input', checkpoint };
  // The worker need not look for what the claim did not find.
  if (run.baseCheckpointId === undefined) return { kind: 'input', checkpoint: 'none' };
  return run.attempt === 1 ? { kind: 'input' } : { kind: 'input', checkpoint: { checkpoint_id: run.baseCheckpointId } };
}
