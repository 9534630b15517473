import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { createThread, type NewThread, type ThreadDeps } from './create-thread.ts';
import { deleteThread } from './delete-thread.ts';
import { readThread, type Thread } from './thread.ts';
import { type StateUpdate, updateThreadState } from './update-thread-state.ts';

/**
 * Creates a thread. If it is new, applies `supersteps` to its state. Deletes the new thread again if that fails.
 *
 * @throws THREAD_EXISTS; the errors of {@link updateThreadState}.
 */
export async function createThreadWithState(
  deps: ThreadDeps,
  wanted: NewThread,
  supersteps: readonly (readonly StateUpdate[])[],
): Promise<Thread> {
  const { database, deploymentId, threadTtl: defaultTtl } = deps;
  const thread = defaultTtl === undefined ? wanted : { ttl: defaultTtl, ...wanted };
  if (supersteps.length === 0) return createThread(database, deploymentId, thread);
  let created: Thread;
  try {
    created = await createThread(database, deploymentId, { ...thread, ifExists: 'raise' });
  } catch (error) {
    const keepsExisting = isRunlakeError(error) && error.code === 'THREAD_EXISTS' && thread.ifExists === 'do_nothing';
    if (keepsExisting) return createThread(database, deploymentId, thread);
    throw error;
  }
  try {
    await updateThreadState(deps, created.thread_id, { updates: supersteps.map((updates) => [...updates]) });
  } catch (error) {
    await deleteThread(database, deploymentId, created.thread_id);
    throw error;
  }
  return readThread(database, deploymentId, created.thread_id);
}
