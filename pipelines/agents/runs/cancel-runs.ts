import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import { cancelLocked } from './cancel-run.ts';
import { lockThread } from './lock-thread.ts';
import type { CancelAction } from './run.ts';

/** Named runs of one thread, or all runs with a status. */
export type RunsToCancel =
  | { readonly threadId: string; readonly runIds: readonly string[] }
  | {
      readonly status: 'pending' | 'running' | 'all';
      /** Members that the metadata of the thread must contain. Default: runs of all threads. */
      readonly ofThreads?: RequiredMetadata | undefined;
    };

/**
 * Cancels several runs, in one transaction per thread.
 *
 * @throws THREAD_NOT_FOUND, RUN_NOT_FOUND, RUN_ENDED for named runs; then none of them is cancelled.
 */
export async function cancelRuns(
  database: Database,
  deploymentId: string,
  which: RunsToCancel,
  action: CancelAction,
): Promise<void> {
  if ('threadId' in which) {
    await database.transaction(async (tx) => {
      const thread = await lockThread(tx, deploymentId, which.threadId);
      if (thread === undefined || thread.hidden) throw runlakeError('THREAD_NOT_FOUND', { thread: which.threadId });
      await cancelLocked(tx, deploymentId, which, action);
    });
    return;
  }
  const statuses = which.status === 'all' ? ['pending', 'running'] : [which.status];
  const selectRuns = (where: string) => `SELECT thread_id, run_id FROM agents.runs
    WHERE deployment_id = $1 AND status IN ('pending', 'running') AND status = ANY ($2::text[]) AND NOT removed ${where}`;
  const inThreads = `AND EXISTS (SELECT FROM agents.threads thread WHERE thread.deployment_id = $1
    AND thread.thread_id = runs.thread_id AND thread.metadata @> $3)`;
  const rows = await database.query<{ thread_id: string }>(selectRuns(inThreads), [
    deploymentId,
    statuses,
    which.ofThreads ?? {},
  ]);
  for (const threadId of new Set(rows.map(({ thread_id }) => thread_id))) {
    await database.transaction(async (tx) => {
      if ((await lockThread(tx, deploymentId, threadId)) === undefined) return;
      const now = await tx.query<{ run_id: string }>(selectRuns('AND thread_id = $3'), [
        deploymentId,
        statuses,
        threadId,
      ]);
      await cancelLocked(tx, deploymentId, { threadId, runIds: now.map(({ run_id }) => run_id) }, action);
    });
  }
}
