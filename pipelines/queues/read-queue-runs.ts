import type { Readable } from 'node:stream';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { findAccepted } from '../../infra/event-log/find-accepted.ts';
import type { RunInChunk } from '../../infra/fairness/tenant-context.ts';
import { streamJsonArray } from '../../infra/json/stream-array.ts';
import { runEvents } from '../../schemas/topics.ts';
import type { AcceptSingleDeps } from '../ingest/accept/accept-single.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import {
  type LocatedRun,
  locateLiveRuns,
  type ReadDeps,
  readLiveProjectIds,
  requireProjects,
} from '../runs/locate-run.ts';
import { readRunsInChunks } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import { findStoredThreads, type ThreadKey } from '../runs/threads.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { listQueueRuns, type OrderedQueueRun, type QueueRun, type Section } from './queue-runs.ts';

/** A run of a queue that is stored, or a thread. */
export interface QueueItem extends OrderedQueueRun {
  /** Project and start time of the run; undefined for a thread. */
  readonly location: LocatedRun | undefined;
}

export interface StoredQueueRun extends QueueItem {
  readonly run_id: string;
  readonly location: LocatedRun;
}

export const isStoredRun = (item: QueueItem): item is StoredQueueRun => item.location !== undefined;

/**
 * Lists the stored runs and the threads of a queue. Deleted and expired runs, and threads of deleted projects, are left
 * out, so that pages are complete and counts agree with them.
 */
export async function listStoredItems(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<QueueItem[]> {
  const listed = await listQueueRuns(database, caller, queueId, sections);
  const runIds = listed.flatMap(({ run_id }) => run_id ?? []);
  const located = await locateLiveRuns(clickhouse, caller.workspaceId, runIds);
  const projectIds = [...located.map((run) => run.projectId), ...listed.flatMap(({ project_id }) => project_id ?? [])];
  const live = new Set(await readLiveProjectIds(database, caller.workspaceId, [...new Set(projectIds)]));
  const stored = new Map(located.map((run) => [run.runId, run]));
  return listed.flatMap((item) => {
    const location = item.run_id === null ? undefined : stored.get(item.run_id);
    return live.has(location?.projectId ?? item.project_id ?? '') ? [{ ...item, location }] : [];
  });
}

/** The runs among {@link listStoredItems}. */
export async function listStoredQueueRuns(
  deps: Pick<ReadDeps, 'clickhouse' | 'database'>,
  caller: WorkspaceCaller,
  queueId: string,
  sections: readonly Section[],
): Promise<StoredQueueRun[]> {
  return (await listStoredItems(deps, caller, queueId, sections)).filter(isStoredRun);
}

const rowsPerCount = 100_000;

/** Counts the stored runs of queues, as {@link listStoredQueueRuns} lists them, by queue. */
export async function countStoredRuns(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  workspaceId: string,
  queueIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>();
  for (let after = { queueId: nilUuid, runId: nilUuid }; ; ) {
    const rows = await database.query<{ queueId: string; runId: string }>(
      `SELECT queue_id AS "queueId", run_id AS "runId" FROM annotation_queue_runs
       WHERE queue_id = ANY ($1::uuid[]) AND run_id IS NOT NULL AND (queue_id, run_id) > ($2::uuid, $3::uuid)
       ORDER BY queue_id, run_id LIMIT ${rowsPerCount}`,
      [queueIds, after.queueId, after.runId],
    );
    const found = await countLiveRuns(clickhouse, workspaceId, rows);
    const projectIds = [...new Set(found.map(({ projectId }) => projectId))];
    const live = new Set(await readLiveProjectIds(database, workspaceId, projectIds));
    for (const { queueId, projectId, runs } of found)
      if (live.has(projectId)) counts.set(queueId, (counts.get(queueId) ?? 0) + runs);
    const last = rows.at(-1);
    if (last === undefined || rows.length < rowsPerCount) return counts;
    after = last;
  }
}

interface LiveRuns {
  readonly queueId: string;
  readonly projectId: string;
  readonly runs: number;
}

/** Counts the runs that `locateLiveRuns` finds, by queue and project. Their locations need not be read here. */
async function countLiveRuns(
  clickhouse: ClickHouse,
  tenantId: string,
  rows: readonly { readonly queueId: string; readonly runId: string }[],
): Promise<LiveRuns[]> {
  if (rows.length === 0) return [];
  return clickhouse.query<LiveRuns>({
    name: 'count-queue-runs',
    settings: lookupSettings,
    sql: `SELECT queue_id AS queueId, project_id AS projectId, count() AS runs
          FROM queue_runs INNER JOIN (
            SELECT id, min(pick).5 AS project_id FROM run_locator
            WHERE tenant_id = {tenant:UUID} AND id IN (SELECT run_id FROM queue_runs)
            GROUP BY id HAVING max(expires_at) > now()
          ) AS located ON located.id = queue_runs.run_id
          GROUP BY queue_id, project_id`,
    params: { tenant: tenantId },
    externalTable: {
      name: 'queue_runs',
      structure: 'queue_id UUID, run_id UUID',
      rows: rows.map(({ queueId, runId }) => [queueId, runId]),
    },
  });
}

/**
 * @throws NOT_FOUND unless each thread has a stored trace in its project, and the workspace has the project; NOT_STORED_YET
 *   if one may be among the events that are not stored yet; errors of the stores and the log.
 */
export async function requireThreads(
  {
    clickhouse,
    database,
    accept,
  }: Pick<ReadDeps, 'clickhouse' | 'database'> & { readonly accept: Pick<AcceptSingleDeps, 'log' | 'config'> },
  tenantId: string,
  threads: readonly ThreadKey[],
): Promise<void> {
  if (threads.length === 0) return;
  const projectIds = [...new Set(threads.map(({ projectId }) => projectId))];
  await requireProjects(database, tenantId, projectIds);
  let missing: ThreadKey | undefined;
  const { log, config } = accept;
  await findAccepted({ log, topic: runEvents, waitMs: 0, storeWaitMs: config.patchWaitMs }, async () => {
    const stored = new Set(await findStoredThreads(clickhouse, tenantId, threads));
    missing = threads.find((thread) => !stored.has(thread));
    return missing === undefined || undefined;
  });
  if (missing !== undefined) throw runlakeError('NOT_FOUND', { what: `Thread ${missing.threadId}` });
}

/**
 * Reads runs of a queue as JSON objects: the run, with the fields of {@link QueueRun}. Large runs are read in several chunks.
 *
 * @throws errors of `readRunsInChunks`.
 */
export async function* readQueueRuns(
  deps: ReadDeps,
  tenantId: string,
  listed: readonly StoredQueueRun[],
  runInChunk?: RunInChunk,
): AsyncGenerator<string[]> {
  const items = new Map(listed.map((item) => [item.run_id, item]));
  const query = { tenantId, runIds: [...items.keys()], selected: selectFields(undefined) };
  for await (const runs of readRunsInChunks(deps, query, runInChunk)) {
    yield runs.map(
      ([runId, json]) => `${json.slice(0, -1)},${JSON.stringify(pickQueueFields(items.get(runId)!)).slice(1)}`,
    );
  }
}

/**
 * Reads a page of runs of a queue as a JSON array. A page of large runs is read and sent in chunks. A page is never cut
 * short because of its size, because clients take a page that is shorter than the limit as the last one.
 *
 * @throws errors of {@link readQueueRuns}.
 */
export async function readQueuePage(
  deps: ReadDeps,
  tenantId: string,
  listed: readonly StoredQueueRun[],
): Promise<Readable> {
  const chunks = readQueueRuns(deps, tenantId, listed);
  // After the first chunk, an error can only cut the response off.
  const first = await chunks.next();
  async function* generateTexts() {
    for (let chunk = first; !chunk.done; chunk = await chunks.next()) yield* chunk.value;
  }
  return streamJsonArray(generateTexts());
}

function pickQueueFields(item: StoredQueueRun): Omit<QueueRun, 'run_id'> {
  const { queue_run_id, added_at, effective_added_at, last_reviewed_time } = item;
  const { source_proposed_example_id, completed_by, reserved_by } = item;
  return {
    ...{ queue_run_id, added_at, effective_added_at, last_reviewed_time },
    ...{ source_proposed_example_id, completed_by, reserved_by },
  };
}
