/**
 * Threads: the traces of a project whose root runs have the same thread id. All figures of a thread are computed from
 * its root runs as they are shown, so they agree with lists of runs, and percentiles are exact.
 *
 *   1. One query groups the root runs that match by thread, newest thread first, and returns the keys of a page.
 *   2. The root runs of the page are read like other runs, at most {@link readAtOnce} at a time, and summed up.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { buildFilterClauses } from './filter-clauses.ts';
import { bindParams, boundTimeRange } from './find-page.ts';
import type { ReadDeps } from './query-runs.ts';
import { readRuns } from './read-runs.ts';
import { type RunKey, startedAtMicros, threadIdSql } from './run-columns.ts';
import { buildKeyConditions, buildScopeCondition, buildValueConditions, type RunFilter } from './run-scope.ts';
import { selectV2Fields } from './run-select.ts';
import { JsonChunks, writeRun } from './write-runs.ts';

export interface ThreadQuery {
  readonly tenantId: string;
  readonly projectId: string;
  /** If present, only this thread. */
  readonly threadId?: string | undefined;
  /** Conditions on the root runs. */
  readonly filter: RunFilter;
  /** At least 1. */
  readonly limitRows: number;
  readonly cursor?: string | undefined;
}

/** Root run of a trace of a thread, with fields of version 2. */
export interface Turn {
  readonly trace_id: string;
  readonly start_time: string;
  readonly end_time: string | null;
  readonly latency_seconds: number | null;
  readonly status: string;
  readonly inputs_preview: string | null;
  readonly outputs_preview: string | null;
  readonly error_preview: string | null;
  readonly total_tokens: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_cost: number | null;
  readonly prompt_cost: number | null;
  readonly completion_cost: number | null;
  readonly prompt_token_details: Details;
  readonly completion_token_details: Details;
  readonly prompt_cost_details: Details;
  readonly completion_cost_details: Details;
}

type Details = { readonly raw: Readonly<Record<string, number>> } | null;

export interface Thread {
  readonly threadId: string;
  /** Root runs, oldest first; at least one. */
  readonly turns: readonly Turn[];
  readonly rootRunIds: readonly string[];
}

export interface ThreadPage {
  readonly threads: readonly Thread[];
  readonly next: string | null;
}

const turnFields = [
  'TRACE_ID',
  'START_TIME',
  'END_TIME',
  'LATENCY_SECONDS',
  'STATUS',
  'INPUTS_PREVIEW',
  'OUTPUTS_PREVIEW',
  'ERROR_PREVIEW',
  'TOTAL_TOKENS',
  'PROMPT_TOKENS',
  'COMPLETION_TOKENS',
  'TOTAL_COST',
  'PROMPT_COST',
  'COMPLETION_COST',
  'PROMPT_TOKEN_DETAILS',
  'COMPLETION_TOKEN_DETAILS',
  'PROMPT_COST_DETAILS',
  'COMPLETION_COST_DETAILS',
] as const;
const readAtOnce = 1_000;

/**
 * Reads a page of threads, the one with the newest trace first. A thread without a trace that matches is left out, and
 * traces that do not match do not count.
 *
 * @throws BAD_REQUEST for an invalid cursor; errors of ClickHouse.
 */
export async function queryThreads(deps: ReadDeps, query: ThreadQuery): Promise<ThreadPage> {
  const found = await findThreads(deps.clickhouse, query);
  const page = found.slice(0, query.limitRows);
  const turns = await readTurns(
    deps,
    query.tenantId,
    page.flatMap(({ roots }) => roots),
  );
  const threads = page.flatMap(({ threadId, roots }) => {
    const read = roots.flatMap((key) => {
      const turn = turns.get(key.runId);
      return turn === undefined ? [] : [{ id: key.runId, turn }];
    });
    if (read.length === 0) return [];
    return [{ threadId, turns: read.map(({ turn }) => turn), rootRunIds: read.map(({ id }) => id) }];
  });
  const last = page.at(-1);
  return { threads, next: found.length > page.length && last ? writeCursor(last) : null };
}

interface FoundThread {
  readonly threadId: string;
  readonly newestMicros: number;
  readonly roots: readonly RunKey[];
}

async function findThreads(clickhouse: ClickHouse, query: ThreadQuery): Promise<FoundThread[]> {
  const { tenantId, projectId, threadId, limitRows, cursor } = query;
  const filter = { ...query.filter, isRoot: true };
  const scope = { tenantId, projectIds: [projectId] };
  const range = buildScopeCondition(scope, boundTimeRange({ filter, order: 'desc' }));
  const keys = buildKeyConditions(filter);
  const values = buildValueConditions(filter);
  const keySql = [range.sql, ...keys.sql].join(' AND ');
  const filtered = buildFilterClauses(filter.conditions, scope, keySql);
  const after = cursor === undefined ? undefined : readCursor(cursor);
  const rows = await clickhouse.query<{
    thread: string;
    newest: number;
    roots: [micros: number, trace: string, id: string][];
  }>({
    ...bindParams(range, keys.params, values.params, filtered.params, {
      wanted: limitRows + 1,
      ...(threadId !== undefined && { thread: threadId }),
      ...(after && { after_time: after.newestMicros, after_thread: after.threadId }),
    }),
    name: 'find-threads',
    settings: filtered.settings,
    sql: `${filtered.withSql} SELECT thread, max(started) AS newest,
            arrayMap(root -> (root.2, root.3, root.4), arraySort(groupArray((started, micros, trace_id, id)))) AS roots
          FROM (
            SELECT ifNull(${threadIdSql}, '') AS thread, ${startedAtMicros} AS started,
              toUnixTimestamp64Micro(start_time) AS micros, trace_id, id
            FROM runs FINAL
            PREWHERE ${keySql}
            WHERE ${[...values.sql, ...filtered.sql].join(' AND ')})
          WHERE ${threadId === undefined ? `thread != ''` : 'thread = {thread:String}'}
          GROUP BY thread
          ${after ? 'HAVING (newest, thread) < ({after_time:Int64}, {after_thread:String})' : ''}
          ORDER BY newest DESC, thread DESC
          LIMIT {wanted:UInt64}`,
  });
  return rows.map(({ thread, newest, roots }) => ({
    threadId: thread,
    newestMicros: newest,
    roots: roots.map(([startTimeMicros, traceId, runId]) => ({ projectId, startTimeMicros, traceId, runId })),
  }));
}

async function readTurns(deps: ReadDeps, tenantId: string, keys: readonly RunKey[]): Promise<Map<string, Turn>> {
  const selected = selectV2Fields(turnFields);
  const turns = new Map<string, Turn>();
  for (let at = 0; at < keys.length; at += readAtOnce) {
    const { rows, related } = await readRuns(deps, tenantId, keys.slice(at, at + readAtOnce), selected);
    for (const row of rows) {
      const json = new JsonChunks();
      writeRun(json, row, selected, related);
      turns.set(row.key.runId, JSON.parse(json.toBuffer().toString('utf8')) as Turn);
    }
  }
  return turns;
}

/** Position of a thread in the list. Like the cursor of runs, it grants no access. */
function writeCursor({ newestMicros, threadId }: FoundThread): string {
  return Buffer.from(JSON.stringify([newestMicros, threadId])).toString('base64url');
}

function readCursor(text: string): Pick<FoundThread, 'newestMicros' | 'threadId'> {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
    const [newestMicros, threadId] = Array.isArray(value) ? (value as unknown[]) : [];
    if (Number.isSafeInteger(newestMicros) && typeof threadId === 'string')
      return { newestMicros: newestMicros as number, threadId };
  } catch {
    // The same error as for other values.
  }
  throw runlakeError('BAD_REQUEST', { reason: 'The cursor was not issued by this server.' });
}

/** Sum of the values that are known; null if none is. */
export function sumOfTurns(turns: readonly Turn[], read: (turn: Turn) => number | null): number | null {
  const values = turns.map(read).filter((value) => value !== null);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
}

/** Sums by kind over some of the details. */
export function sumDetailsOfTurns(
  turns: readonly Turn[],
  read: (turn: Turn) => readonly Details[],
): Record<string, number> {
  const sums = new Map<string, number>();
  for (const details of turns.flatMap(read)) {
    for (const [kind, value] of Object.entries(details?.raw ?? {})) sums.set(kind, (sums.get(kind) ?? 0) + value);
  }
  return Object.fromEntries(sums);
}

/** Exact percentile of the latencies of the traces that have ended, interpolated; null if there are none. */
export function latencyPercentile(turns: readonly Turn[], fraction: number): number | null {
  const latencies = turns.flatMap(({ latency_seconds: latency }) => latency ?? []).sort((a, b) => a - b);
  const position = (latencies.length - 1) * fraction;
  const [low, high] = [latencies[Math.floor(position)], latencies[Math.ceil(position)]];
  return low === undefined || high === undefined ? null : low + (high - low) * (position - Math.floor(position));
}
