import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { HistoryQuery, StateQuery } from '../workers/messages.ts';
import { readThreadHead, selectStateFields, type ThreadState } from './thread.ts';
import { resolveGraphThread, type ThreadDeps } from './write-threads.ts';

const emptyState: ThreadState = {
  values: {},
  next: [],
  tasks: [],
  checkpoint: null,
  parent_checkpoint: null,
  metadata: {},
  created_at: null,
  interrupts: [],
};

/**
 * Reads the newest state of a thread, or the state at a checkpoint, as JSON text. Returns an empty state if no graph
 * has run on the thread.
 *
 * @throws THREAD_NOT_FOUND, CHECKPOINT_NOT_FOUND; the errors of {@link ThreadDeps.pool}.
 */
export async function readThreadState(
  deps: ThreadDeps,
  threadId: string,
  { checkpoint, subgraphs, select }: StateQuery,
): Promise<string> {
  const thread = await resolveGraphThread(deps, await readThreadHead(deps.database, deps.deploymentId, threadId));
  if (thread !== undefined) {
    const options = { ...(checkpoint && { checkpoint }), ...(select && { select }) };
    const text = await deps.pool.query({ kind: 'state', thread, subgraphs, ...options });
    // The worker returns null for a graph without a checkpointer.
    if (text !== 'null') return text;
  }
  if (checkpoint?.checkpoint_id !== undefined) {
    throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: checkpoint.checkpoint_id });
  }
  return JSON.stringify(selectStateFields(emptyState, select));
}

/**
 * Reads the states of a thread as a JSON array, newest first. The array is empty if no graph has run on the thread.
 *
 * @throws THREAD_NOT_FOUND, ANSWER_TOO_LARGE; the errors of {@link ThreadDeps.pool}.
 */
export async function readThreadHistory(
  deps: ThreadDeps & { readonly config: Pick<Config, 'maxPageBytes'> },
  threadId: string,
  query: HistoryQuery,
): Promise<string> {
  const thread = await resolveGraphThread(deps, await readThreadHead(deps.database, deps.deploymentId, threadId));
  const limitBytes = deps.config.maxPageBytes;
  return thread === undefined ? '[]' : deps.pool.query({ kind: 'history', thread, ...query, limitBytes });
}
