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
 * The newest runs of one project, without conditions on values, are read without `FINAL` (`newest-runs.ts`).
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
import {
  buildKeyQuery,
  type FoundRun,
  type KeyRow,
  keyColumns,
  mergeShards,
  type PageRequest,
  toRunKey,
} from './key-query.ts';
import { isNewestRuns, readNewestRuns } from './newest-runs.ts';
import { boundTimeRange, generateSlices, maxProbedRows } from './page-slices.ts';
import { isModelCallSql, type RunKey, runBytes } from './run-columns.ts';
import { buildKeysCondition, buildScopeCondition, type KeyCondition, maxListedIds } from './run-scope.ts';

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
  if (isNewestRuns(request)) {
    const { found, isComplete, last } = await readNewestRuns(clickhouse, request, limit);
    if (isComplete) return found;
    return [...found, ...(await findInSlices(clickhouse, { ...request, after: last }, limit - found.length))];
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
    // With DISTINCT, ClickHouse would not stop reading at the limit.
    sql: `${withSql} SELECT ${keyColumns}
          FROM ${tableSql}
          WHERE ${[keySql, ...positionSql, ...(rowSql === undefined ? [] : [rowSql])].join(' AND ')}
          ${orderSql}
          LIMIT 1 BY start_time, trace_id, id, session_id
          LIMIT {limit:UInt64}`,
  });
  return mergeShards(rows.map(toRunKey), request.order, maxCandidates + 1);
}
