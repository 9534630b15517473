import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { resolveAssistant } from '../assistants/resolve-assistant.ts';
import type { ThreadOfGraph, WorkerPool } from '../workers/worker-pool.ts';
import type { ThreadTtl } from './create-thread.ts';
import type { Thread } from './thread.ts';

/** Dependencies of queries about a thread. */
export interface ThreadDeps {
  readonly database: Database;
  readonly deploymentId: string;
  readonly pool: Pick<WorkerPool, 'ask'>;
  /** TTL of new threads that set none. Default: no TTL. */
  readonly threadTtl?: ThreadTtl | undefined;
}

/**
 * Describes a thread for a query to a worker: the graph that its metadata names, and the config of its last run or else
 * of its assistant. Undefined if the thread has no graph yet.
 */
export async function threadOfGraph(
  { database, deploymentId }: ThreadDeps,
  { thread_id: threadId, metadata, config: stored }: Thread,
): Promise<ThreadOfGraph | undefined> {
  const { graph_id: graphId, assistant_id: assistantId } = metadata;
  if (typeof graphId !== 'string') return undefined;
  const config =
    Object.keys(stored).length > 0
      ? stored
      : await readAssistantConfig(typeof assistantId === 'string' ? assistantId : graphId);
  return { deploymentId, threadId, graphId, config };

  /** Clients can write metadata, and the assistant can be deleted: then the config is empty. */
  async function readAssistantConfig(idOrGraphId: string): Promise<object> {
    try {
      const assistant = await resolveAssistant(database, deploymentId, idOrGraphId);
      return assistant.graph_id === graphId ? assistant.config : {};
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'ASSISTANT_NOT_FOUND') return {};
      throw error;
    }
  }
}
