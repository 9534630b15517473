import type { Config } from '../../../infra/config/settings.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import { readThread } from './read-thread.ts';
import { type ThreadPorts, threadOfGraph } from './thread-of-graph.ts';

export interface HistoryQuestion {
  readonly limit: number;
  /** Only states older than this checkpoint. */
  readonly before?: CheckpointChoice;
  /** Returns the history of the subgraph of this checkpoint. */
  readonly checkpoint?: CheckpointChoice;
  /** Members that the metadata of a state must contain. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Returns only these fields of each state. */
  readonly select?: readonly string[];
}

/**
 * Reads the states of a thread as a JSON array, newest first. Empty if no graph has run on the thread.
 *
 * @throws THREAD_NOT_FOUND, ANSWER_TOO_LARGE; the errors of {@link ThreadPorts.pool}.
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
