import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { findPath } from '../ingest/json/find.ts';
import { scanJson } from '../ingest/json/scan.ts';
import { locateRuns, readLiveProjectIds } from '../runs/locate-run.ts';
import { queryRuns, type ReadDeps, v1Envelope } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { listQueueRuns, type QueueRun, type Section } from './queue-runs.ts';

const runsPerQuery = 100;
/** Maximum size of the runs that are in memory for one response. */
const maxBytes = 64 * 1024 * 1024;

/**
 * The runs of a queue that are stored. Runs that were deleted or have expired are left out, so that pages are complete
 * and numbers agree with them.
 */
export async function listStoredQueueRuns(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<QueueRun[]> {
  const listed = await listQueueRuns(database, caller, queueId, sections);
  const located = await locateRuns(
    clickhouse,
    caller.workspaceId,
    listed.map((run) => run.run_id),
  );
  const projectIds = [...new Set(located.map((run) => run.projectId))];
  const live = new Set(await readLiveProjectIds(database, caller.workspaceId, projectIds));
  const stored = new Set(located.filter(({ projectId }) => live.has(projectId)).map(({ runId }) => runId));
  return listed.filter((run) => stored.has(run.run_id));
}

/**
 * Reads runs of a queue as a list of JSON objects: the run, with the fields of {@link QueueRun}.
 *
 * @throws BAD_REQUEST if the runs are too large for one response; errors of the stores.
 */
export async function readQueueRuns(deps: ReadDeps, tenantId: string, listed: readonly QueueRun[]): Promise<string[]> {
  const runIds = listed.map((run) => run.run_id);
  const runs = new Map<string, string>();
  let bytes = 0;
  for (let cursor: string | undefined; runIds.length > 0; ) {
    const page = await queryRuns(
      deps,
      {
        tenantId,
        runIds,
        filter: {},
        selected: selectFields(undefined),
        order: 'asc',
        limitRows: runsPerQuery,
        cursor,
      },
      v1Envelope,
    );
    bytes += page.length;
    if (bytes > maxBytes) {
      throw runlakeError('BAD_REQUEST', { reason: 'The runs of this page are too large; send a smaller limit.' });
    }
    for (const [id, json] of splitRuns(page)) runs.set(id, json);
    const next = findPath(page, 0, page.length, ['cursors', 'next']);
    cursor = (next && (JSON.parse(page.toString('utf8', next.start, next.end)) as string | null)) ?? undefined;
    if (cursor === undefined) break;
  }
  return listed.flatMap(({ run_id, ...queueRun }) => {
    const json = runs.get(run_id);
    return json === undefined ? [] : [`${json.slice(0, -1)},${JSON.stringify(queueRun).slice(1)}`];
  });
}

/** Returns each run of a page as it is in the page, because stored JSON must not be formatted again. */
function splitRuns(page: Buffer): [id: string, json: string][] {
  const runs: [string, string][] = [];
  const list = findPath(page, 0, page.length, ['runs'])!;
  scanJson(page, list.start, list.end, { part: 'runs', maxDepth: Infinity }, (_, start, end) => {
    const id = findPath(page, start, end, ['id'])!;
    runs.push([page.toString('utf8', id.start + 1, id.end - 1), page.toString('utf8', start, end)]);
  });
  return runs;
}
