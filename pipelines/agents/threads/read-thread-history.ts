import type { Config } from '../../../infra/config/settings.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import { readThread } from './read-thread.ts';
import { type ThreadPorts, threadOfGraph } from './thread-of-graph.ts';

export interface HistoryQuestion {
  readonly limit: number;
  /** Only states older than this checkpoint. */
  readonly before?: CheckpointChoice;
  /** Of the subgraph of this checkpoint. */
  readonly checkpoint?: CheckpointChoice;
  /** Only states whose metadata holds all of it. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Only these fields of each. */
  readonly select?: readonly string[];
}

/**
 * States of a thread, newest first, as JSON text; none where no graph ran on it yet.
 *
 * @throws THREAD_NOT_FOUND, ANSWER_TOO_LARGE, and what {@link ThreadPorts.pool} throws.
 */
export async function readThreadHistory(
  ports: ThreadPorts & { readonly config: Pick<Config, 'maxPageBytes'> },
  threadId: string,
  question: HistoryQuestion,
): Promise<string> {
  const thread = await threadOfGraph(ports, await readThread(ports.database, ports.deploymentId, threadId));
  const limitBytes = ports.config.maxPageBytes;
  return thread === undefined ? '[]' : ports.pool.ask({ kind: 'history', thread, ...question, limitBytes });
}
