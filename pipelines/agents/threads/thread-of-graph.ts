import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { resolveAssistant } from '../assistants/resolve-assistant.ts';
import type { ThreadOfGraph, WorkerPool } from '../workers/worker-pool.ts';
import type { ThreadTtl } from './create-thread.ts';
import type { Thread } from './thread.ts';

/** What questions about a thread need. */
export interface ThreadPorts {
  readonly database: Database;
  readonly deploymentId: string;
  readonly pool: Pick<WorkerPool, 'ask'>;
  /** Of threads that are made and say nothing of it. Default: they stay for good. */
  readonly threadTtl?: ThreadTtl | undefined;
}

/**
 * The thread as graph code is asked about it: with the graph of its first run, or of its metadata, and the configuration of its
 * last run, or of its assistant. Undefined where it has no graph yet.
 */
export async function threadOfGraph(
  { database, deploymentId }: ThreadPorts,
  { thread_id: threadId, metadata, config: noted }: Thread,
): Promise<ThreadOfGraph | undefined> {
  const { graph_id: graphId, assistant_id: assistantId } = metadata;
  if (typeof graphId !== 'string') return undefined;
  const config =
    Object.keys(noted).length > 0 ? noted : await configOf(typeof assistantId === 'string' ? assistantId : graphId);
  return { deploymentId, threadId, graphId, config };

  /** The assistant may be gone, and metadata is whatever a client says. */
  async function configOf(idOrGraphId: string): Promise<object> {
    try {
      const assistant = await resolveAssistant(database, deploymentId, idOrGraphId);
      return assistant.graph_id === graphId ? assistant.config : {};
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'ASSISTANT_NOT_FOUND') return {};
      throw error;
    }
  }
}
