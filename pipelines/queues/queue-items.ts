/** Runs and threads of a queue as items: their positions, page by page. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { requireStored } from '../../infra/event-log/find-accepted.ts';
import { runEvents } from '../../schemas/topics.ts';
import type { AcceptSingleDeps } from '../ingest/accept/accept-single.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { type ReadDeps, requireProjects } from '../runs/locate-run.ts';
import { readAllRuns } from '../runs/query-runs.ts';
import { selectFields } from '../runs/run-select.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { createDuplicateError, createQueue, deleteQueue, type QueueFields, type QueueWithConfigs } from './queue.ts';
import { addQueueRuns, type NewQueueRun, type Section, sections } from './queue-runs.ts';
import { isStoredRun, listStoredItems, type QueueItem } from './read-queue-runs.ts';

type StoreDeps = Pick<ReadDeps, 'clickhouse' | 'database'>;

/** Times in microseconds since 1970; absent bounds do not restrict the result. */
export interface ItemTimes {
  /** Lower bound of the time when the run was last reviewed, inclusive. */
  readonly reviewedFromMicros?: number | undefined;
  /** Upper bound of the time when the run was last reviewed, exclusive. */
  readonly reviewedBeforeMicros?: number | undefined;
  /** Lower bound of the start of the run, inclusive. */
  readonly startedFromMicros?: number | undefined;
  /** Upper bound of the start of the run, exclusive. */
  readonly startedBeforeMicros?: number | undefined;
}

/** The stored runs, and the threads, of a queue in the given sections and times, in the order of the caller. */
export async function listItems(
  deps: StoreDeps,
  caller: WorkspaceCaller,
  queueId: string,
  wanted: readonly Section[],
  times: ItemTimes = {},
): Promise<QueueItem[]> {
  const stored = await listStoredItems(deps, caller, queueId, wanted);
  return stored.filter(({ location, last_reviewed_time }) => {
    const reviewedMicros = last_reviewed_time === null ? undefined : parseTime(last_reviewed_time);
    return (
      isBetween(location?.startTimeMicros, times.startedFromMicros, times.startedBeforeMicros) &&
      isBetween(reviewedMicros, times.reviewedFromMicros, times.reviewedBeforeMicros)
    );
  });
}

/** An item without the time matches no bound. */
function isBetween(micros: number | undefined, from = -Infinity, before = Infinity): boolean {
  if (micros === undefined) return from === -Infinity && before === Infinity;
  return micros >= from && micros < before;
}

interface ItemPageRequest {
  readonly limit: number;
  readonly cursor?: string | undefined;
  /** Whether to return the items before the cursor. */
  readonly backward: boolean;
}

/** Returns a page of items, and the cursor of the next page in the same direction, which is null if there is none. */
export function takePage(
  items: readonly QueueItem[],
  { limit, cursor, backward }: ItemPageRequest,
): { readonly page: readonly QueueItem[]; readonly next: string | null } {
  const at = cursor === undefined ? undefined : findCursorIndex(items, readCursor(cursor));
  if (backward) {
    const end = at?.index ?? items.length;
    const start = Math.max(0, end - limit);
    const page = items.slice(start, end);
    return { page, next: start > 0 && page[0] ? writeCursor(page[0]) : null };
  }
  const start = at === undefined ? 0 : at.index + (at.isFound ? 1 : 0);
  const page = items.slice(start, start + limit);
  const last = page.at(-1);
  return { page, next: start + page.length < items.length && last ? writeCursor(last) : null };
}

/**
 * Returns the position of the item of the cursor. If the item has left the list since its cursor was issued, returns
 * the position where it was.
 */
function findCursorIndex(items: readonly QueueItem[], [addedAt, position]: CursorPosition) {
  const addedMicros = parseTime(addedAt) ?? 0;
  const index = items.findIndex((item) => {
    const difference = (parseTime(item.effective_added_at) ?? 0) - addedMicros;
    return difference > 0 || (difference === 0 && item.position >= position);
  });
  return { index: index < 0 ? items.length : index, isFound: items[index]?.position === position };
}

type CursorPosition = readonly [addedAt: string, position: number];

export function writeCursor({ effective_added_at, position }: QueueItem): string {
  return Buffer.from(JSON.stringify([effective_added_at, position] satisfies CursorPosition)).toString('base64url');
}

function readCursor(text: string): CursorPosition {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
    const [addedAt, position] = Array.isArray(value) ? (value as unknown[]) : [];
    const isTime = typeof addedAt === 'string' && parseTime(addedAt) !== undefined;
    if (isTime && Number.isSafeInteger(position)) return [addedAt, position as number];
  } catch {
    // Throw the same error as for other invalid values.
  }
  throw runlakeError('BAD_REQUEST', { reason: 'The cursor was not issued by this server.' });
}

export interface ItemPosition {
  readonly section: Section;
  /** Position within the section, starting at 0. */
  readonly position: number;
  readonly item: QueueItem;
}

/** Finds an item of a queue for the caller; `among: 'runs'` leaves out threads. @throws NOT_FOUND */
export async function findItemPosition(
  deps: StoreDeps,
  caller: WorkspaceCaller,
  queueId: string,
  queueRunId: string,
  { among }: { readonly among: 'runs' | 'items' },
): Promise<ItemPosition> {
  const items = (await listItems(deps, caller, queueId, sections)).filter(
    (item) => among === 'items' || isStoredRun(item),
  );
  const item = items.find(({ queue_run_id }) => queue_run_id === queueRunId);
  if (item === undefined) throw runlakeError('NOT_FOUND', { what: 'Run of the queue' });
  const position = items.filter(({ section }) => section === item.section).indexOf(item);
  return { section: item.section, position, item };
}

const runsAtOnce = 1_000;
/** One more than the maximum number of runs in a queue. */
const maxPopulatedRuns = 10_001;

interface PopulateDeps extends ReadDeps {
  readonly accept: Pick<AcceptSingleDeps, 'log' | 'config'>;
}

/**
 * Creates a queue with the root runs of projects: all or none.
 *
 * @throws NOT_FOUND if a project does not exist; errors of {@link createQueue} and {@link populateQueue}.
 */
export async function createPopulatedQueue(
  deps: PopulateDeps,
  workspaceId: string,
  { id, fields, projectIds }: NewQueue,
): Promise<QueueWithConfigs> {
  const { database } = deps;
  const live = await requireProjects(database, workspaceId, projectIds);
  if (live.length > 0) await waitForRuns(deps, workspaceId, live);
  const { queue, isNew } = await createQueue(database, workspaceId, id, fields);
  if (live.length > 0) {
    // Another request may be adding its runs, and may delete the queue if it fails.
    if (!isNew) throw createDuplicateError();
    await addRootRuns(deps, workspaceId, { queueId: queue.id, projectIds: live, keepsTraces: false }).catch(
      async (error: unknown) => {
        await deleteQueue(database, workspaceId, queue.id);
        throw error;
      },
    );
  }
  return queue;
}

interface NewQueue {
  readonly id: string | undefined;
  readonly fields: QueueFields;
  readonly projectIds: readonly string[];
}

interface RunsToPopulate {
  readonly queueId: string;
  readonly projectIds: readonly string[];
  /** Whether the traces of the runs become longlived. */
  readonly keepsTraces: boolean;
}

/**
 * Adds the root runs of projects to a queue, and returns their number. The newest runs may have been sent just before.
 *
 * @throws NOT_FOUND; QUEUE_FULL; NOT_STORED_YET if runs of the projects may be among the events that are not stored yet.
 */
export async function populateQueue(deps: PopulateDeps, workspaceId: string, from: RunsToPopulate): Promise<number> {
  await waitForRuns(deps, workspaceId, from.projectIds);
  return addRootRuns(deps, workspaceId, from);
}

async function addRootRuns(
  deps: ReadDeps,
  workspaceId: string,
  { queueId, projectIds, keepsTraces }: RunsToPopulate,
): Promise<number> {
  const found = readAllRuns<{ readonly id: string; readonly trace_id: string }>(deps, {
    tenantId: workspaceId,
    projectIds,
    filter: { isRoot: true },
    selected: selectFields(['id', 'trace_id']),
    order: 'asc',
    limitRows: runsAtOnce,
  });
  const runs: NewQueueRun[] = [];
  const traceIds: string[] = [];
  for await (const { id, trace_id } of found) {
    runs.push({ runId: id });
    traceIds.push(trace_id);
    if (runs.length === maxPopulatedRuns) break;
  }
  await addQueueRuns(deps, workspaceId, queueId, runs, keepsTraces ? traceIds : []);
  return runs.length;
}

/**
 * Waits until the runs of projects that were accepted before are stored. Experiments that began more than a day ago,
 * which have their runs, do not wait.
 */
async function waitForRuns(
  { database, accept: { log, config } }: PopulateDeps,
  workspaceId: string,
  projectIds: readonly string[],
): Promise<void> {
  const [active] = await database.query(
    `SELECT FROM projects WHERE workspace_id = $1 AND id = ANY ($2::uuid[])
       AND (reference_dataset_id IS NULL OR start_time > now() - interval '1 day') LIMIT 1`,
    [workspaceId, projectIds],
  );
  if (active !== undefined) await requireStored({ log, topic: runEvents, storeWaitMs: config.patchWaitMs });
}
