import type { Sql } from '../../../infra/postgres/database.ts';
import { beforeStart } from './protocol-event.ts';

/**
 * Where in a thread a reader begins that names no place: with the runs that go on, or wait to be started, or else with the last one.
 * What ended before is the state of the thread; told again, its end would be taken for that of the run that goes on.
 */
export async function replayPlace(
  database: Sql,
  deploymentId: string,
  threadId: string,
): Promise<{ readonly threadSeq: number }> {
  const [row] = await database.query<{ starts: number; last: number | null; running: number | null; waiting: boolean }>(
    `SELECT thread.starts,
       -- Updates of state outside runs count as starts, too, and are nothing that a reader of runs would be shown.
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
