import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { rollbackCheckpoints } from '../checkpoints/rollback-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { recordWebhook } from '../webhooks/record-webhook.ts';
import { lockThread, updateThreadStatus } from './lock-thread.ts';
import type { RunKwargs } from './run.ts';
import type { ClaimedRun, RunFailure } from './run-row.ts';

/** Number of lost attempts after which a run fails. */
const maxLosses = 3;

export type RunToRelease = Pick<ClaimedRun, 'deploymentId' | 'threadId' | 'runId' | 'leaseToken'>;

interface RequeueOptions {
  /** Whether the next attempt must be the only run in its worker. */
  readonly alone: boolean;
  /** Whether the attempt counts as lost. */
  readonly countLoss: boolean;
}

/**
 * Requeues a run, so that any process can start it again. Does nothing if the lease was lost. With `countLoss` the
 * attempt counts as lost. After the second loss the run gets a worker of its own, so that no other run can kill it.
 * After the third loss the run fails. A run whose cancellation was requested ends as interrupted.
 */
export async function releaseRun(database: Database, run: RunToRelease, how: RequeueOptions): Promise<void> {
  await database.transaction((tx) => requeueRun(tx, run, { ...how, onlyExpired: false }));
}

/**
 * {@link releaseRun} in a given transaction. With `onlyExpired` it does nothing if the process of the run has a valid
 * heartbeat.
 */
export async function requeueRun(
  tx: Sql,
  { deploymentId, threadId, runId, leaseToken }: RunToRelease,
  { alone, countLoss, onlyExpired }: RequeueOptions & { readonly onlyExpired: boolean },
): Promise<void> {
  await lockThread(tx, deploymentId, threadId);
  const [row] = await tx.query<{ status: string; removed: boolean; kwargs: RunKwargs }>(
    requeueSql,
    [deploymentId, runId, leaseToken, countLoss ? 1 : 0, maxLosses, JSON.stringify(lost), alone, onlyExpired],
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
    await recordWebhook(tx, { deploymentId, runId, webhook: kwargs.webhook, error });
  }
  await updateThreadStatus(tx, deploymentId, threadId);
  await tx.execute("SELECT pg_notify('agent_runs', $1), pg_notify('agent_ends', $1)", [deploymentId]);
}

/** SQL condition: the process of the row `run` of `agents.runs` has a valid heartbeat. */
export const processIsAlive = `EXISTS (
  SELECT FROM agents.processes WHERE processes.process_id = run.process_id AND alive_until > clock_timestamp()
)`;

const requeueSql = `
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

/** Whether a run failed because its attempts were lost, and not with an error of its own. */
export const isGivenUp = ({ error, message }: RunFailure) => error === lost.error && message === lost.message;

const lost: RunFailure = {
  error: 'RunLost',
  message: `The process that executed the run was lost ${maxLosses} times. It is not retried.`,
};
