import type { Database } from '../../../infra/postgres/database.ts';
import { endSeq } from '../streams/stream-numbers.ts';
import type { RunReadFrom, StreamHub, StreamReader } from '../streams/stream-types.ts';
import { readRun } from './read-run.ts';
import type { Run } from './run.ts';

interface FollowDeps {
  readonly deploymentId: string;
  readonly database: Database;
  readonly hub: StreamHub;
}

/**
 * Attaches a reader to an existing run. Reads a resumable run, whose events are stored, from `requestedFrom`, and any
 * other run from now.
 *
 * Reads the row again after the reader is attached, so that no end is missed. If the run is unfinished then, the reader
 * receives its end. If the run has ended, a reader that starts now is closed. Any other reader returns the stored
 * events and finishes; if the end is not yet in the log, it first waits until an executor has published the end.
 *
 * @throws RUN_NOT_FOUND
 */
export async function followRun(
  deps: FollowDeps,
  ids: { readonly threadId: string; readonly runId: string },
  requestedFrom: RunReadFrom,
): Promise<{ readonly run: Run; readonly reader: StreamReader }> {
  const { deploymentId, database, hub } = deps;
  const run = await readRun(database, deploymentId, ids);
  const from = run.kwargs.resumable ? requestedFrom : 'now';
  const reader = await hub.readRun({ deploymentId, ...ids }, from);
  try {
    const { status } = hasEnded(run) ? run : await readRun(database, deploymentId, ids);
    if (!hasEnded({ status })) return { run, reader };
    if (from === 'now') reader.close();
    else {
      const attempt = await readUnpublishedAttempt(deps, ids.runId);
      if (attempt === undefined || isPastEnd(from, attempt)) void reader.finish();
    }
    return { run, reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

/** The attempt of an end that is not yet in the log; undefined if the end is in the log. */
async function readUnpublishedAttempt({ deploymentId, database }: FollowDeps, runId: string) {
  const [row] = await database.query<{ attempt: number }>(
    'SELECT attempt FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published = false',
    [deploymentId, runId],
    { name: 'agents_coming_end' },
  );
  return row?.attempt;
}

/** Whether the reader has already received the end of this attempt. */
function isPastEnd(from: RunReadFrom, attempt: number): boolean {
  if (typeof from === 'string') return false;
  return from.attempt > attempt || (from.attempt === attempt && from.seq >= endSeq);
}

function hasEnded({ status }: Pick<Run, 'status'>): boolean {
  return status !== 'pending' && status !== 'running';
}
