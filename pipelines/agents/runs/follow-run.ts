import type { Database } from '../../../infra/postgres/database.ts';
import { endSeq } from '../streams/stream-numbers.ts';
import type { RunReadFrom, StreamHub, StreamReader } from '../streams/stream-ports.ts';
import { readRun } from './read-run.ts';
import type { Run } from './run.ts';

interface FollowPorts {
  readonly deploymentId: string;
  readonly database: Database;
  readonly hub: StreamHub;
}

/**
 * Joins a run that was made before, where its events are kept from the place that is asked for, else now.
 *
 * Its row is read once more after the reader was attached: a run that goes on then ends after that, so that the reader gets its end.
 * Of one whose end is in the log nothing is to come but what is kept. Where the end is on its way into the log, it is what the reader
 * waits for: whoever finds that it is missing there publishes it.
 *
 * @throws RUN_NOT_FOUND
 */
export async function followRun(
  ports: FollowPorts,
  ids: { readonly threadId: string; readonly runId: string },
  asked: RunReadFrom,
): Promise<{ readonly run: Run; readonly reader: StreamReader }> {
  const { deploymentId, database, hub } = ports;
  const run = await readRun(database, deploymentId, ids);
  const from = run.kwargs.resumable ? asked : 'now';
  const reader = await hub.readRun({ deploymentId, ...ids }, from);
  try {
    const { status } = hasEnded(run) ? run : await readRun(database, deploymentId, ids);
    if (!hasEnded({ status })) return { run, reader };
    if (from === 'now') reader.close();
    else {
      const attempt = await attemptOfComingEnd(ports, ids.runId);
      if (attempt === undefined || isPastEnd(from, attempt)) void reader.finish();
    }
    return { run, reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

/** Undefined where the end of the run is in the log. */
async function attemptOfComingEnd({ deploymentId, database }: FollowPorts, runId: string) {
  const [row] = await database.query<{ attempt: number }>(
    'SELECT attempt FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published = false',
    [deploymentId, runId],
    { name: 'agents_coming_end' },
  );
  return row?.attempt;
}

/** Whether the end of that attempt would be nothing new to the reader. */
function isPastEnd(from: RunReadFrom, attempt: number): boolean {
  if (typeof from === 'string') return false;
  return from.attempt > attempt || (from.attempt === attempt && from.seq >= endSeq);
}

function hasEnded({ status }: Pick<Run, 'status'>): boolean {
  return status !== 'pending' && status !== 'running';
}
