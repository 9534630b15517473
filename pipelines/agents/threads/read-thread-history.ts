import type { Config } from '../../../infra/config/settings.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import { readThread } from './read-thread.ts';
import { type ThreadDeps, threadOfGraph } from './thread-of-graph.ts';

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
 * @throws THREAD_NOT_FOUND, ANSWER_TOO_LARGE; the errors of {@link ThreadDeps.pool}.
 */
export async function readThreadHistory(
  deps: ThreadDeps & { readonly config: Pick<Config, 'maxPageBytes'> },
  threadId: string,
  question: HistoryQuestion,
): Promise<string> {
  const thread = await threadOfGraph(deps, await readThread(deps.database, deps.deploymentId, threadId));
  const limitBytes = deps.config.maxPageBytes;
  return thread === undefined ? '[]' : deps.pool.ask({ kind: 'history', thread, ...question, limitBytes });
}
