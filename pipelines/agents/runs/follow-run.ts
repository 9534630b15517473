import type { Database } from '../../../infra/postgres/database.ts';
import type { RunReadFrom, StreamHub, StreamReader } from '../streams/stream-ports.ts';
import { readRun } from './read-run.ts';
import type { Run } from './run.ts';

/**
 * Joins a run that was made before, where its events are kept from the place that is asked for, else now.
 *
 * Its row is read once more after the reader was attached: a run that goes on then ends after that, so that the reader gets its end.
 * Of one that has ended nothing is to come but what is kept.
 *
 * @throws RUN_NOT_FOUND
 */
export async function followRun(
  ports: { readonly organizationId: string; readonly database: Database; readonly hub: StreamHub },
  ids: { readonly threadId: string; readonly runId: string },
  asked: RunReadFrom,
): Promise<{ readonly run: Run; readonly reader: StreamReader }> {
  const { organizationId, database, hub } = ports;
  const run = await readRun(database, organizationId, ids);
  const from = run.kwargs.resumable ? asked : 'now';
  const reader = await hub.readRun({ organizationId, ...ids }, from);
  try {
    const { status } = hasEnded(run) ? run : await readRun(database, organizationId, ids);
    if (hasEnded({ status })) {
      if (from === 'now') reader.close();
      else void reader.finish();
    }
    return { run, reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

function hasEnded({ status }: Pick<Run, 'status'>): boolean {
  return status !== 'pending' && status !== 'running';
}
