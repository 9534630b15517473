import { setTimeout as pause } from 'node:timers/promises';
import type { Database } from '../../../infra/postgres/database.ts';
import type { RunReadFrom, StreamHub, StreamReader } from '../streams/stream-ports.ts';
import { readRun } from './read-run.ts';
import type { Run } from './run.ts';

/** Between looks at a run that ended while its end is on its way into the log, which takes a moment. */
const lookEveryMs = 500;

interface FollowPorts {
  readonly organizationId: string;
  readonly database: Database;
  readonly hub: StreamHub;
}

/**
 * Joins a run that was made before, where its events are kept from the place that is asked for, else now.
 *
 * Its row is read once more after the reader was attached: a run that goes on then ends after that, so that the reader gets its end.
 * Of one whose end is in the log nothing is to come but what is kept.
 *
 * @throws RUN_NOT_FOUND
 */
export async function followRun(
  ports: FollowPorts,
  ids: { readonly threadId: string; readonly runId: string },
  asked: RunReadFrom,
): Promise<{ readonly run: Run; readonly reader: StreamReader }> {
  const { organizationId, database, hub } = ports;
  const run = await readRun(database, organizationId, ids);
  const from = run.kwargs.resumable ? asked : 'now';
  const reader = await hub.readRun({ organizationId, ...ids }, from);
  try {
    const { status } = hasEnded(run) ? run : await readRun(database, organizationId, ids);
    if (!hasEnded({ status })) return { run, reader };
    if (from === 'now') reader.close();
    else if (await isEndPublished(ports, ids.runId)) void reader.finish();
    else return { run, reader: finishedOncePublished(ports, ids.runId, reader) };
    return { run, reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

/** A reader that gets the end when it is published, and does not wait for it where it stands behind the end already. */
function finishedOncePublished(ports: FollowPorts, runId: string, reader: StreamReader): StreamReader {
  const closed = new AbortController();
  const looking = async () => {
    while (!(await isEndPublished(ports, runId))) await pause(lookEveryMs, undefined, { signal: closed.signal });
    await reader.finish();
  };
  // A database that is away for a moment: the reader still gets the end from the log.
  looking().catch(() => undefined);
  return {
    [Symbol.asyncIterator]: () => reader[Symbol.asyncIterator](),
    finish: () => reader.finish(),
    close: () => {
      closed.abort();
      reader.close();
    },
  };
}

async function isEndPublished({ organizationId, database }: FollowPorts, runId: string): Promise<boolean> {
  const rows = await database.query(
    'SELECT FROM agents.runs WHERE organization_id = $1 AND run_id = $2 AND end_published = false',
    [organizationId, runId],
    { name: 'agents_is_end_published' },
  );
  return rows.length === 0;
}

function hasEnded({ status }: Pick<Run, 'status'>): boolean {
  return status !== 'pending' && status !== 'running';
}
