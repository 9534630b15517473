import type { Sql } from '../../../infra/postgres/database.ts';
import { beforeStart } from './protocol-event.ts';

/**
 * Returns the position in a thread at which a reader without a position starts: the start of the running run, else of
 * the next pending run, else of the last run. Excludes earlier runs, because their result is the state of the thread
 * and clients would mistake their ends for the end of the active run.
 */
export async function replayPosition(
  database: Sql,
  deploymentId: string,
  threadId: string,
): Promise<{ readonly threadSeq: number }> {
  const [row] = await database.query<{ starts: number; last: number | null; running: number | null; waiting: boolean }>(
    `SELECT thread.starts,
       -- State updates outside runs also count as starts, but readers of runs do not see them.
       (SELECT max(thread_start) FROM agents.runs run
        WHERE run.deployment_id = $1 AND run.thread_id = $2) AS last,
       (SELECT min(thread_start) FROM agents.runs run
        WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.status = 'running') AS running,
       EXISTS (SELECT FROM agents.runs run
        WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.status = 'pending') AS waiting
     FROM agents.threads thread WHERE thread.deployment_id = $1 AND thread.thread_id = $2`,
    [deploymentId, threadId],
    { name: 'agents_replay_place' },
  );
  const { starts = 0, last, running, waiting } = row ?? {};
  const start = running ?? (waiting ? starts + 1 : Math.max(1, last ?? starts));
  return { threadSeq: beforeStart(start) };
}
