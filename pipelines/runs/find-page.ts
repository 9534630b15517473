/**
 * Step 1 of reading a page: finds the keys of its runs.
 *
 * Slices of the time range (`page-slices.ts`) are read with `FINAL` until the page is full: only keys and filter columns,
 * with the conditions on values.
 *
 * For a filter with a condition on stored rows (`FilterClauses.rowSql`), a query without `FINAL` first finds the keys of
 * rows in the slice that satisfy it, which a skip index makes fast; only these candidates are read with `FINAL`. The fewer
 * candidates a slice has, the wider is the next one. If there are too many for the page, the rest of it is read as without
 * this condition, from the last candidate on.
 *
 * For a filter on other runs of the trace that an index finds, the candidates are the runs of these traces, if they are few
 * (`filtered-traces.ts`).
 *
 * The number of queries for a page is bounded, even if few runs match and are far apart.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { buildFilterClauses } from './filter-clauses.ts';
import { buildTracesCondition, type FilteredTraces, findFilteredTraces } from './filtered-traces.ts';
import type { PageCursor } from './page-cursor.ts';
import { boundTimeRange, generateSlices, maxProbedRows } from './page-slices.ts';
import { isModelCallSql, type Order, type RunKey, runBytes } from './run-columns.ts';
import {
  buildKeyConditions,
  buildKeysCondition,
  buildProjectsCondition,
  buildScopeCondition,
  buildValueConditions,
  type KeyCondition,
  maxListedIds,
  type RunFilter,
  type RunScope,
} from './run-scope.ts';

export interface PageRequest {
  readonly scope: RunScope;
  readonly filter: RunFilter;
  readonly order: Order;
  /** Maximum number of runs on the page. */
  readonly limitRows: number;
  readonly after?: RunKey | undefined;
  /** If present, only these runs are considered. */
  readonly among?: readonly RunKey[] | undefined;
}

export interface FoundRun extends RunKey {
  /** Size of the JSON columns of the run. */
  readonly bytes: number;
  readonly isModelCall: boolean;
}

/**
 * Maximum number of rows of the first slice if a condition on stored rows finds its runs; the slice may then be larger.
 */
const maxProbedCandidates = 32_768;
/** Maximum number of candidates. Reading more runs by their keys takes longer than reading a slice. */
const maxCandidates = 2_000;
/** Number of candidates that are read first, beyond those that the page needs, because some may not match. */
const spareCandidates = 20;
const sliceGrowth = 8;
/** Maximum growth. A filter without candidates begins with a small slice and is slow in every query. */
const maxSliceGrowth = 64;

/**
 * Finds the keys of the runs of a page, in order. Returns one key more than requested if more runs follow.
 *
 * @throws errors of ClickHouse.
 */
export async function findPage(clickhouse: ClickHouse, request: PageRequest): Promise<FoundRun[]> {
  const { scope, filter, among } = request;
  const limit = request.limitRows + 1;
  if (among !== undefined) return findListedRuns(clickhouse, request, among, limit);
  if (scope.projectIds.length === 0) return [];
  // The index on trace ids finds a trace in any time range.
  if (filter.traceId !== undefined) {
    return findKeys(clickhouse, request, buildScopeCondition(scope, boundTimeRange(request)), limit);
  }
  // Candidates are sent as an external table, as longer lists of projects are.
  if (scope.projectIds.length > maxListedIds || filter.conditions === undefined)
    return findInSlices(clickhouse, request, limit);
  const filtered = await findFilteredTraces(clickhouse, scope, filter.conditions);
  if (filtered !== undefined) return findInTraces(clickhouse, request, filtered, limit);
  const hasCandidates = buildFilterClauses(filter.conditions, scope, '').rowSql !== undefined;
  return hasCandidates ? findByCandidates(clickhouse, request, limit) : findInSlices(clickhouse, request, limit);
}

/** Finds the runs of a page in the traces that its filter selects. */
async function findInTraces(
  clickhouse: ClickHouse,
  request: PageRequest,
  { traces, others }: FilteredTraces,
  limit: number,
): Promise<FoundRun[]> {
  if (traces.length === 0) return [];
  const inTraces = { ...request, filter: { ...request.filter, conditions: others } };
  const keyRange = buildTracesCondition(request.scope, boundTimeRange(request), traces);
  const candidates = await findCandidates(clickhouse, inTraces, keyRange);
  const first = candidates.slice(0, maxCandidates);
  const found = await readCandidates(clickhouse, inTraces, first, limit);
  if (found.length >= limit || candidates.length === first.length) return found;
  const rest = { ...request, after: first.at(-1) };
  return [...found, ...(await findInSlices(clickhouse, rest, limit - found.length))];
}

async function findInSlices(clickhouse: ClickHouse, request: PageRequest, limit: number): Promise<FoundRun[]> {
  const found: FoundRun[] = [];
  const growth = request.filter.conditions === undefined ? sliceGrowth : maxSliceGrowth;
  for await (const slice of generateSlices(clickhouse, request, { probedRows: maxProbedRows, growth })) {
    const keyRange = buildScopeCondition(request.scope, slice);
    found.push(...(await findKeys(clickhouse, request, keyRange, limit - found.length)));
    if (found.length >= limit) break;
  }
  return found;
}

async function findByCandidates(clickhouse: ClickHouse, request: PageRequest, limit: number): Promise<FoundRun[]> {
  const found: FoundRun[] = [];
  let pending: RunKey[] = [];
  const readPending = async () => {
    found.push(...(await readCandidates(clickhouse, request, pending, limit - found.length)));
    pending = [];
  };
  const sliceOptions = { probedRows: maxProbedCandidates, growth: sliceGrowth };
  for await (const slice of generateSlices(clickhouse, request, sliceOptions)) {
    const candidates = await findCandidates(clickhouse, request, buildScopeCondition(request.scope, slice));
    const first = candidates.slice(0, maxCandidates);
    pending.push(...first);
    sliceOptions.growth = chooseGrowth(candidates.length, limit);
    const isComplete = candidates.length === first.length;
    if (isComplete && pending.length < limit - found.length) continue;
    await readPending();
    if (found.length >= limit) return found;
    if (!isComplete) {
      const rest = { ...request, after: first.at(-1) };
      return [...found, ...(await findInSlices(clickhouse, rest, limit - found.length))];
    }
  }
  await readPending();
  return found;
}

/** Finds the first candidates that match, at most `limit`. */
async function readCandidates(
  clickhouse: ClickHouse,
  request: PageRequest,
  candidates: readonly RunKey[],
  limit: number,
): Promise<FoundRun[]> {
  const found: FoundRun[] = [];
  for (let at = 0, size = limit + spareCandidates; at < candidates.length && found.length < limit; size *= 2) {
    found.push(...(await findListedRuns(clickhouse, request, candidates.slice(at, at + size), limit - found.length)));
    at += size;
  }
  return found;
}

/** The next slice has several times as many candidates as the page needs, if they are as dense as in the previous slice. */
function chooseGrowth(candidates: number, limit: number): number {
  const growth = Math.floor((4 * limit) / Math.max(candidates, 1));
  return Math.min(Math.max(growth, sliceGrowth), maxSliceGrowth);
}

interface KeyRow {
  readonly session_id: string;
  readonly micros: number;
  readonly trace_id: string;
  readonly id: string;
}

const keyColumns = 'session_id, toUnixTimestamp64Micro(start_time) AS micros, trace_id, id';

/** Merges the first runs of each shard, in the order of ClickHouse. */
function mergeShards<Key extends RunKey>(runs: Key[], order: Order, limit: number): Key[] {
  const compare = (one: RunKey, other: RunKey) =>
    one.startTimeMicros - other.startTimeMicros ||
    compareUuids(one.traceId, other.traceId) ||
    compareUuids(one.runId, other.runId) ||
    compareUuids(one.projectId, other.projectId);
  return runs.sort(order === 'asc' ? compare : (one, other) => compare(other, one)).slice(0, limit);
}

/** ClickHouse compares the second half of a UUID first. */
function compareUuids(one: string, other: string): number {
  if (one === other) return 0;
  return one.slice(19) + one < other.slice(19) + other ? -1 : 1;
}

function toRunKey({ session_id, micros, trace_id, id }: KeyRow): RunKey {
  return { projectId: session_id, startTimeMicros: micros, traceId: trace_id, runId: id };
}

/** Builds the clauses of a query for the keys of matching runs in `keyRange`, and the values that the query binds. */
function buildKeyQuery({ scope, filter, order, after, among }: PageRequest, keyRange: KeyCondition) {
  // Subqueries of a filter need the projects; `keyRange` contains them unless it lists runs.
  const projects = among && filter.conditions ? buildProjectsCondition(scope).params : {};
  const keys = buildKeyConditions(filter);
  const values = buildValueConditions(filter);
  const position = after === undefined ? undefined : buildCursorCondition({ order, after });
  const keySql = [keyRange.sql, ...keys.sql].join(' AND ');
  const filtered = buildFilterClauses(filter.conditions, scope, keySql);
  const valueSql = [...values.sql, ...filtered.sql];
  // Each shard would evaluate a subquery for itself, on all shards.
  const hasSubquery = [filtered.withSql, filtered.rowSql, ...valueSql].some((sql) => sql?.includes('SELECT'));
  return {
    tableSql: hasSubquery ? 'runs' : '{stored_runs:Identifier}',
    keySql,
    positionSql: position?.sql ?? [],
    valueSql,
    rowSql: filtered.rowSql,
    rowSettings: filtered.rowSettings,
    withSql: filtered.withSql,
    orderSql: `ORDER BY start_time ${order}, trace_id ${order}, id ${order}, session_id ${order}`,
    bound: {
      settings: filtered.settings,
      ...(!hasSubquery && { shardTables: ['runs'] }),
      ...bindParams(keyRange, projects, keys.params, values.params, filtered.params, position?.params),
    },
  };
}

async function findKeys(
  clickhouse: ClickHouse,
  request: PageRequest,
  keyRange: KeyCondition,
  limit: number,
): Promise<FoundRun[]> {
  const { tableSql, keySql, positionSql, valueSql, withSql, orderSql, bound } = buildKeyQuery(request, keyRange);
  const rows = await clickhouse.query<KeyRow & { readonly bytes: number; readonly is_call: number }>({
    ...bound,
    params: { ...bound.params, limit },
    name: 'find-runs',
    // A filter may read the texts of a whole slice.
    settings: { ...bound.settings, ...((request.among ?? !request.filter.conditions) && lookupSettings) },
    sql: `${withSql} SELECT ${keyColumns}, ${runBytes} AS bytes, ifNull(${isModelCallSql}, 0) AS is_call
          FROM ${tableSql} FINAL
          PREWHERE ${keySql}
          WHERE ${[...positionSql, ...valueSql].join(' AND ')}
          ${orderSql}
          LIMIT {limit:UInt64}`,
  });
  const found = rows.map((row) => ({ ...toRunKey(row), bytes: row.bytes, isModelCall: row.is_call === 1 }));
  return mergeShards(found, request.order, limit);
}

function findListedRuns(
  clickhouse: ClickHouse,
  request: PageRequest,
  among: readonly RunKey[],
  limit: number,
): Promise<FoundRun[]> {
  if (among.length === 0) return Promise.resolve([]);
  return findKeys(clickhouse, { ...request, among }, buildKeysCondition(request.scope.tenantId, among), limit);
}

/**
 * Finds the keys of runs that have a stored row selected by the row condition of the filter, if it has one. Returns one
 * key more than the maximum if there are more.
 */
async function findCandidates(clickhouse: ClickHouse, request: PageRequest, keyRange: KeyCondition): Promise<RunKey[]> {
  const { tableSql, keySql, positionSql, rowSql, rowSettings, withSql, orderSql, bound } = buildKeyQuery(
    request,
    keyRange,
  );
  const rows = await clickhouse.query<KeyRow>({
    ...bound,
    params: { ...bound.params, limit: maxCandidates + 1 },
    name: 'find-candidates',
    settings: { ...bound.settings, ...rowSettings },
    sql: `${withSql} SELECT DISTINCT ${keyColumns}, start_time
          FROM ${tableSql}
          WHERE ${[keySql, ...positionSql, ...(rowSql === undefined ? [] : [rowSql])].join(' AND ')}
          ${orderSql}
          LIMIT {limit:UInt64}`,
  });
  return mergeShards(rows.map(toRunKey), request.order, maxCandidates + 1);
}

/**
 * Builds the condition for the runs after the cursor. ClickHouse compares the ids, because its order of UUIDs differs
 * from the order of their text.
 */
function buildCursorCondition({ order, after }: PageCursor) {
  return {
    sql: [
      `(start_time, trace_id, id, session_id) ${order === 'desc' ? '<' : '>'}
        (fromUnixTimestamp64Micro({after_time:Int64}), {after_trace:UUID}, {after_run:UUID}, {after_project:UUID})`,
    ],
    params: {
      after_time: after.startTimeMicros,
      after_trace: after.traceId,
      after_run: after.runId,
      after_project: after.projectId,
    },
  };
}

function bindParams({ params, externalTable }: KeyCondition, ...more: readonly (KeyCondition['params'] | undefined)[]) {
  return {
    params: Object.assign({}, params, ...more) as KeyCondition['params'],
    ...(externalTable && { externalTable }),
  };
}
