/**
 * Threads: the traces of a project whose root runs have the same thread id. ClickHouse computes everything from merged
 * rows; the figures are those of `stats/read-stats.ts`.
 *
 *   1. One query groups the matching root runs by thread, newest thread first, and returns a page of threads.
 *   2. Statistics, and the first and last turns, are read for the threads of the page.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { RunFilterConditions } from './filter/sql-terms.ts';
import type { ThreadCondition } from './filter/thread-filter.ts';
import { toPlainText } from './json-sql.ts';
import { previewCharacters, runColumns, startedAtMicros } from './run-columns.ts';
import { truncate } from './run-fields.ts';
import type { RunFilter, RunScope } from './run-scope.ts';
import { threadGrouping } from './stats/grouping.ts';
import { buildMatchingRuns, type RunSet } from './stats/matching-runs.ts';
import { createEmptyStats, readRunStats, wholeSetGroup } from './stats/read-stats.ts';
import type { RunStats, StatName } from './stats/stat-names.ts';
import { buildThreadSelection } from './thread-selection.ts';

interface ThreadScope {
  readonly tenantId: string;
  readonly projectId: string;
  /** Conditions on the root runs, or on threads if `selectsThreads` is true. */
  readonly filter: Omit<RunFilter, 'threads'>;
  /** Condition on the summary of a thread, over all its traces in the time range of `filter`. */
  readonly threadCondition?: ThreadCondition | undefined;
}

export interface ThreadQuery extends ThreadScope {
  /** Maximum number of threads, at least 1. */
  readonly limitRows: number;
  readonly cursor?: string | undefined;
  readonly offset?: number | undefined;
}

/** First and last turns of a thread. Times are in microseconds since 1970; texts are previews. */
interface ThreadEdges {
  readonly first_trace: string;
  readonly last_trace: string;
  readonly first_start: number;
  readonly last_start: number;
  readonly last_end: number | null;
  readonly errors: number;
  readonly first_inputs: string | null;
  readonly last_outputs: string | null;
  readonly last_error: string | null;
}

export interface Thread extends ThreadEdges {
  readonly threadId: string;
  readonly stats: RunStats;
}

export interface ThreadPage {
  readonly threads: readonly Thread[];
  readonly next: string | null;
  /** Number of threads after the cursor, or of all threads if there is no cursor. */
  readonly total: number;
}

const listedStats: ReadonlySet<StatName> = new Set([
  'run_count',
  'latency_p50',
  'latency_p99',
  'total_tokens',
  'total_cost',
  'prompt_token_details',
  'completion_token_details',
  'prompt_cost_details',
  'completion_cost_details',
  'feedback_stats',
] satisfies StatName[]);

/**
 * Reads a page of threads, the thread with the newest trace first. A thread without a matching trace is omitted. Traces that
 * do not match do not count, unless the filter selects threads.
 *
 * @throws BAD_REQUEST for an invalid cursor; errors of ClickHouse.
 */
export async function queryThreads(clickhouse: ClickHouse, query: ThreadQuery): Promise<ThreadPage> {
  const found = await findThreads(clickhouse, query);
  const page = found.slice(0, query.limitRows);
  const last = page.at(-1);
  const next = found.length > page.length && last ? writeCursor(last) : null;
  if (page.length === 0) return { threads: [], next, total: query.offset ? await countThreads(clickhouse, query) : 0 };
  const ids = page.map(({ thread }) => thread);
  const { startedFromMicros = 0, startedBeforeMicros = Number.MAX_SAFE_INTEGER } = query.filter;
  const filter = {
    ...query.filter,
    startedFromMicros: Math.max(startedFromMicros, Math.min(...page.map(({ oldest }) => oldest))),
    startedBeforeMicros: Math.min(startedBeforeMicros, Math.max(...page.map(({ newest }) => newest)) + 1),
    conditions: addThreadCondition(ids, query.filter.selectsThreads ? undefined : query.filter.conditions),
    selectsThreads: false,
  };
  const set = { ...buildSet({ ...query, filter, threadCondition: undefined }), groups: ids };
  const [stats, edges] = await Promise.all([
    readRunStats(clickhouse, { ...set, selected: listedStats }),
    readEdges(clickhouse, set),
  ]);
  const threads = ids.flatMap((threadId) => {
    const [statsOf, edgesOf] = [stats.get(threadId), edges.get(threadId)];
    return statsOf && edgesOf ? [{ threadId, ...edgesOf, stats: statsOf }] : [];
  });
  return { threads, next, total: found[0]?.total ?? 0 };
}

export interface ThreadKey {
  readonly projectId: string;
  readonly threadId: string;
}

/** Returns those of `threads` that have a root run. */
export async function findStoredThreads(
  clickhouse: ClickHouse,
  tenantId: string,
  threads: readonly ThreadKey[],
): Promise<ThreadKey[]> {
  const projectIds = [...new Set(threads.map(({ projectId }) => projectId))];
  const conditions = addThreadCondition([...new Set(threads.map(({ threadId }) => threadId))], undefined);
  const set = { scope: { tenantId, projectIds }, filter: { conditions, isRoot: true }, groupBy: threadGrouping };
  const { sql, ...query } = buildMatchingRuns(set, ['session_id']);
  const rows = await clickhouse.query<ThreadKey>({
    ...query,
    name: 'find-stored-threads',
    sql: `SELECT DISTINCT session_id AS "projectId", assumeNotNull(grp) AS "threadId" FROM (${sql})`,
  });
  const stored = new Set(rows.map((row) => `${row.projectId} ${row.threadId}`));
  return threads.filter(({ projectId, threadId }) => stored.has(`${projectId} ${threadId}`));
}

/**
 * Reads the positions of traces in their threads, from 1, the oldest trace first. The map is keyed by trace id.
 *
 * @param threadIds The threads of these traces.
 *
 * @throws errors of ClickHouse.
 */
export async function readTurnNumbers(
  clickhouse: ClickHouse,
  scope: RunScope,
  traceIds: readonly string[],
  threadIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  if (threadIds.length === 0) return new Map();
  const filter = { conditions: addThreadCondition(threadIds, undefined), isRoot: true };
  const columns = ['session_id', 'trace_id', `${startedAtMicros} AS started`];
  const { sql, params, ...query } = buildMatchingRuns({ scope, filter, groupBy: threadGrouping }, columns);
  const rows = await clickhouse.query<{ trace_id: string; turn: number }>({
    ...query,
    params: { ...params, traces: traceIds },
    name: 'number-turns',
    sql: `SELECT trace_id, turn FROM (
            SELECT trace_id, row_number() OVER (PARTITION BY session_id, grp ORDER BY started, toString(trace_id)) AS turn
            FROM (${sql}))
          WHERE trace_id IN {traces:Array(UUID)}`,
  });
  return new Map(rows.map(({ trace_id, turn }) => [trace_id, turn]));
}

/** Number of threads with a root run that matches. */
export async function countThreads(clickhouse: ClickHouse, scope: ThreadScope): Promise<number> {
  const filter = { ...scope.filter, selectsThreads: false };
  const { sql, ...query } = buildMatchingRuns(buildSet({ ...scope, filter }), []);
  const [row] = await clickhouse.query<{ threads: number }>({
    ...query,
    name: 'count-threads',
    sql: `SELECT uniqExact(grp) AS threads FROM (${sql})`,
  });
  return row?.threads ?? 0;
}

/** Reads statistics of the root runs that belong to a thread, and the number of threads. */
export async function readThreadsStats(
  clickhouse: ClickHouse,
  scope: ThreadScope,
  selected: ReadonlySet<StatName>,
): Promise<{ readonly stats: RunStats; readonly threads: number }> {
  const filter = scope.filter.selectsThreads ? scope.filter : addThreadExistsCondition(scope.filter);
  const { groupBy: _groupBy, ...set } = buildSet({ ...scope, filter });
  const [stats, threads] = await Promise.all([
    readRunStats(clickhouse, { ...set, selected }),
    countThreads(clickhouse, scope),
  ]);
  return { stats: stats.get(wholeSetGroup) ?? createEmptyStats(selected), threads };
}

/** Reads statistics of one thread, and its first and last turns. The turns are absent if no trace matches. */
export async function readThreadStats(
  clickhouse: ClickHouse,
  scope: ThreadScope & { readonly threadId: string },
  selected: ReadonlySet<StatName>,
): Promise<{ readonly stats: RunStats; readonly edges: ThreadEdges | undefined }> {
  const filter = { ...scope.filter, conditions: addThreadCondition([scope.threadId], scope.filter.conditions) };
  const set = { ...buildSet({ ...scope, filter }), groups: [scope.threadId] };
  const [stats, edges] = await Promise.all([
    readRunStats(clickhouse, { ...set, selected }),
    readEdges(clickhouse, set),
  ]);
  return { stats: stats.get(scope.threadId) ?? createEmptyStats(selected), edges: edges.get(scope.threadId) };
}

function buildSet({ tenantId, projectId, filter, threadCondition }: ThreadScope): RunSet {
  const set = { scope: { tenantId, projectIds: [projectId] }, groupBy: threadGrouping };
  const { startedFromMicros, startedBeforeMicros } = filter;
  const threads =
    threadCondition &&
    buildThreadSelection({ ...set, filter: { startedFromMicros, startedBeforeMicros, isRoot: true } }, threadCondition);
  return { ...set, filter: { ...filter, isRoot: true, threads } };
}

/**
 * Adds the condition that the run is in one of the given threads. The index on metadata finds up to a hundred of them.
 */
export function addThreadCondition(
  threadIds: readonly string[],
  conditions: RunFilterConditions | undefined,
): RunFilterConditions {
  const threadCondition = { kind: 'compare', operator: 'in', field: 'thread_id', value: threadIds } as const;
  return { trace: [], tree: [], ...conditions, run: [threadCondition, ...(conditions?.run ?? [])] };
}

function addThreadExistsCondition(filter: RunFilter): RunFilter {
  const hasThread = { kind: 'compare', operator: 'neq', field: 'thread_id', value: null } as const;
  const { conditions } = filter;
  return {
    ...filter,
    conditions: { trace: [], tree: [], ...conditions, run: [hasThread, ...(conditions?.run ?? [])] },
  };
}

interface FoundThread {
  readonly thread: string;
  readonly newest: number;
  readonly oldest: number;
  readonly total: number;
}

async function findThreads(clickhouse: ClickHouse, query: ThreadQuery): Promise<FoundThread[]> {
  const { limitRows, cursor, offset = 0 } = query;
  const after = cursor === undefined ? undefined : readCursor(cursor);
  const { sql, params, ...rest } = buildMatchingRuns(buildSet(query), [`${startedAtMicros} AS started`]);
  return clickhouse.query<FoundThread>({
    ...rest,
    params: {
      ...params,
      wanted: limitRows + 1,
      offset,
      ...(after && { after_time: after.newest, after_thread: after.thread }),
    },
    name: 'find-threads',
    sql: `SELECT thread, newest, oldest, count() OVER () AS total FROM (
            SELECT assumeNotNull(grp) AS thread, max(started) AS newest, min(started) AS oldest FROM (${sql})
            GROUP BY thread
            ${after ? 'HAVING (newest, thread) < ({after_time:Int64}, {after_thread:String})' : ''})
          ORDER BY newest DESC, thread DESC
          LIMIT {wanted:UInt64} OFFSET {offset:UInt64}`,
  });
}

/** Reads the inputs of the first turn, the outputs of the last turn and the newest error, for each thread of a set. */
async function readEdges(clickhouse: ClickHouse, set: RunSet): Promise<Map<string, ThreadEdges>> {
  const { sql, ...query } = buildMatchingRuns(set, [
    `${startedAtMicros} AS started`,
    `${runColumns.endedAtMicros} AS ended`,
    '(started, start_time, trace_id, id) AS position',
    'trace_id',
    `${runColumns.inputsPreview} AS first_text`,
    `${runColumns.outputsPreview} AS last_text`,
    `if(isNull(error), NULL, substringUTF8(${toPlainText(`ifNull(error, '')`)}, 1, ${previewCharacters + 1})) AS error_text`,
  ]);
  const rows = await clickhouse.query<ThreadEdges & { readonly grp: string }>({
    ...query,
    name: 'read-thread-edges',
    // A tuple preserves a null, which `argMin` would skip.
    sql: `SELECT grp, argMin(trace_id, position) AS first_trace, argMax(trace_id, position) AS last_trace,
            min(started) AS first_start, max(started) AS last_start, max(ended) AS last_end, countIf(isNotNull(error_text)) AS errors,
            argMin(tuple(first_text), position).1 AS first_inputs, argMax(tuple(last_text), position).1 AS last_outputs,
            argMaxIf(error_text, position, isNotNull(error_text)) AS last_error
          FROM (${sql}) GROUP BY grp`,
  });
  return new Map(
    rows.map(({ grp, ...edges }) => [
      grp,
      {
        ...edges,
        first_inputs: preview(edges.first_inputs),
        last_outputs: preview(edges.last_outputs),
        last_error: preview(edges.last_error),
      },
    ]),
  );
}

const preview = (text: string | null) => truncate(text ?? undefined) ?? null;

/** Encodes the position of a thread in the list. Like the cursor of runs, it grants no access. */
function writeCursor({ newest, thread }: FoundThread): string {
  return Buffer.from(JSON.stringify([newest, thread])).toString('base64url');
}

function readCursor(text: string): Pick<FoundThread, 'newest' | 'thread'> {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
    const [newest, thread] = Array.isArray(value) ? (value as unknown[]) : [];
    if (Number.isSafeInteger(newest) && typeof thread === 'string') return { newest: newest as number, thread };
  } catch {
    // The same error as for other values.
  }
  throw runlakeError('BAD_REQUEST', { reason: 'The cursor was not issued by this server.' });
}
