import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { createThread, type NewThread } from './create-thread.ts';
import { deleteThread } from './delete-thread.ts';
import { readThread } from './read-thread.ts';
import type { Thread } from './thread.ts';
import type { ThreadPorts } from './thread-of-graph.ts';
import { type StateUpdate, updateThreadState } from './update-thread-state.ts';

/**
 * Makes a thread and, where it is new, puts `supersteps` into its state; a thread whose state could not be made is taken back.
 *
 * @throws THREAD_EXISTS, and what {@link updateThreadState} throws.
 */
export async function createThreadWithState(
  ports: ThreadPorts,
  wanted: NewThread,
  supersteps: readonly (readonly StateUpdate[])[],
): Promise<Thread> {
  const { database, deploymentId, threadTtl: usualTtl } = ports;
  const thread = usualTtl === undefined ? wanted : { ttl: usualTtl, ...wanted };
  if (supersteps.length === 0) return createThread(database, deploymentId, thread);
  let made: Thread;
  try {
    made = await createThread(database, deploymentId, { ...thread, ifExists: 'raise' });
  } catch (error) {
    const stands = isRunlakeError(error) && error.code === 'THREAD_EXISTS' && thread.ifExists === 'do_nothing';
    if (stands) return createThread(database, deploymentId, thread);
    throw error;
  }
  try {
    await updateThreadState(ports, made.thread_id, { updates: supersteps.map((updates) => [...updates]) });
  } catch (error) {
    await deleteThread(database, deploymentId, made.thread_id);
    throw error;
  }
  return readThread(database, deploymentId, made.thread_id);
}
