import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { rollbackCheckpoints } from '../checkpoints/rollback-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { noteWebhook } from '../webhooks/note-webhook.ts';
import { lockThread, settleThreadStatus } from './lock-thread.ts';
import type { RunKwargs } from './run.ts';
import type { ClaimedRun, RunFailure } from './run-row.ts';

/** Starts that may end without a word before a run is given up. */
export const mostLosses = 3;

export type HeldRun = Pick<ClaimedRun, 'deploymentId' | 'threadId' | 'runId' | 'leaseToken'>;

interface GivingBack {
  readonly alone: boolean;
  readonly countLoss: boolean;
}

/**
 * Requeues a run, so that any process can start it again. Without its token nothing happens. With `countLoss` the start counts as lost;
 * the third loss ends the run. That one is alone in its process: what kills it there is no other run. One that was to be cancelled ends.
 */
export async function releaseRun(database: Database, run: HeldRun, how: GivingBack): Promise<void> {
  await database.transaction((tx) => giveBack(tx, run, { ...how, onlyExpired: false }));
}

/** For {@link releaseRun} and the sweep: `onlyExpired` tests the heartbeat of its process once more, under the lock. */
export async function giveBack(
  tx: Sql,
  { deploymentId, threadId, runId, leaseToken }: HeldRun,
  { alone, countLoss, onlyExpired }: GivingBack & { readonly onlyExpired: boolean },
): Promise<void> {
  await lockThread(tx, deploymentId, threadId);
  const [row] = await tx.query<{ status: string; removed: boolean; kwargs: RunKwargs }>(
    giveBackSql,
    [deploymentId, runId, leaseToken, countLoss ? 1 : 0, mostLosses, JSON.stringify(lost), alone, onlyExpired],
    { name: 'agents_release_run' },
  );
  if (row === undefined) return;
  const { status, removed, kwargs } = row;
  if (removed) await rollbackCheckpoints(tx, threadKey(deploymentId, threadId), runId);
  else if (status !== 'pending') {
    const error = status === 'error' ? JSON.stringify(lost) : null;
    await tx.execute(
      `UPDATE agents.threads SET rest_status = $3, error = $4, state_updated_at = clock_timestamp()
       WHERE deployment_id = $1 AND thread_id = $2`,
      [deploymentId, threadId, error === null ? 'idle' : 'error', error],
    );
  }
  if (status !== 'pending') {
    const error = status === 'error' ? lost.message : undefined;
    await noteWebhook(tx, { deploymentId, runId, webhook: kwargs.webhook, error });
  }
  await settleThreadStatus(tx, deploymentId, threadId);
  await tx.execute("SELECT pg_notify('agent_runs', $1), pg_notify('agent_ends', $1)", [deploymentId]);
}

/** Whether the process of a row of `agents.runs` has a valid heartbeat. */
export const processIsAlive = `EXISTS (
  SELECT FROM agents.processes WHERE processes.process_id = run.process_id AND alive_until > clock_timestamp()
)`;

const giveBackSql = `
UPDATE agents.runs run SET
  losses = run.losses + $4::int,
  status = next.status,
  removed = coalesce(run.cancel_action = 'rollback', false),
  error = CASE WHEN next.status = 'error' THEN $6::json END,
  alone = run.alone OR $7 OR run.losses + $4::int >= $5::int - 1,
  lease_token = NULL,
  process_id = NULL,
  ended_at = CASE WHEN next.status <> 'pending' THEN clock_timestamp() END,
  end_published = CASE WHEN next.status <> 'pending' THEN false END,
  updated_at = clock_timestamp()
FROM (
  SELECT CASE WHEN cancel_action IS NOT NULL THEN 'interrupted' WHEN losses + $4::int >= $5::int THEN 'error' ELSE 'pending' END AS status
  FROM agents.runs WHERE deployment_id = $1 AND run_id = $2
) next
WHERE run.deployment_id = $1 AND run.run_id = $2 AND run.lease_token = $3 AND run.status = 'running'
  AND (NOT $8::boolean OR NOT ${processIsAlive})
RETURNING run.status, run.removed, run.kwargs`;

/** Whether a run was given up, and not failed by itself. */
export const isGivenUp = ({ error, message }: RunFailure) => error === lost.error && message === lost.message;

const lost: RunFailure = {
  error: 'RunLost',
  message: `The process that executed the run was lost ${mostLosses} times: the run is given up.`,
};
