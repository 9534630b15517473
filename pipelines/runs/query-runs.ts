import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { findRequiredId } from './filter/run-filter.ts';
import { type FoundRun, findPage, type PageRequest } from './find-page.ts';
import { locateRun, locateRuns, locateTrace, readLiveProjectIds } from './locate-run.ts';
import { readCursor, writeCursor } from './page-cursor.ts';
import { type ReadRuns, readRuns } from './read-runs.ts';
import type { Order, RunExtras, RunKey } from './run-columns.ts';
import type { RunFilter } from './run-scope.ts';
import { type SelectName, selectFields } from './run-select.ts';
import { JsonChunks, writeRun } from './write-runs.ts';

export interface ReadDeps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly extras: RunExtras;
  readonly config: Pick<Config, 'maxPageBytes'>;
}

export interface RunQuery {
  readonly tenantId: string;
  /** If present, only these runs; `projectIds` and `filter` are ignored. */
  readonly runIds?: readonly string[] | undefined;
  /** If absent, all projects of the workspace that are not deleted. */
  readonly projectIds?: readonly string[] | undefined;
  readonly filter: RunFilter;
  readonly select?: readonly SelectName[] | undefined;
  readonly order: Order;
  /** At least 1. */
  readonly limitRows: number;
  readonly cursor?: string | undefined;
  /** Whether the response contains the cursor of the next page. */
  readonly withCursor: boolean;
}

/**
 * Reads a page of runs as JSON: `{"runs":[…],"cursors":{"next":…},…}`. The page ends early, with a cursor, when the
 * JSON of its runs exceeds `maxPageBytes`, but not before the first run. A page with a cursor is never empty, because
 * clients would stop at an empty page.
 *
 * @throws BAD_REQUEST for an invalid cursor; errors of the stores.
 */
export async function queryRuns(deps: ReadDeps, query: RunQuery): Promise<Buffer> {
  const selected = selectFields(query.select);
  const request = await buildPageRequest(deps, query);
  const { rows, related, last } = await readPage(deps, request, (keys) =>
    readRuns(deps, query.tenantId, keys, selected),
  );
  const json = new JsonChunks();
  let before = '{"runs":[';
  for (const row of rows) {
    json.add(before);
    writeRun(json, row, selected.fields, related);
    before = ',';
  }
  const next = last && query.withCursor ? writeCursor({ order: query.order, after: last }) : null;
  json.add(rows.length === 0 ? `${before}]` : ']');
  json.add(`,"cursors":{"next":${JSON.stringify(next)}},"search_cursors":null,"parsed_query":null}`);
  return json.toBuffer();
}

/** Builds the request for a page, with a scope as narrow as the ids in the query allow. */
async function buildPageRequest({ clickhouse, database }: ReadDeps, query: RunQuery): Promise<PageRequest> {
  const { tenantId, runIds, order, limitRows, cursor, filter } = query;
  const paging = { order, limitRows, after: cursor === undefined ? undefined : readCursor(cursor, order).after };
  if (runIds !== undefined) {
    const located = await locateRuns(clickhouse, tenantId, runIds);
    const live = new Set(await readLiveProjectIds(database, tenantId, listDistinctProjects(located)));
    const among = located.filter((key) => live.has(key.projectId));
    return { ...paging, scope: { tenantId, projectIds: [...live] }, filter: {}, among };
  }
  const projectIds = await readLiveProjectIds(database, tenantId, query.projectIds);
  const traceId = await findRequiredTrace(clickhouse, tenantId, filter);
  if (traceId === undefined) return { ...paging, scope: { tenantId, projectIds }, filter };
  const projectsOfTrace = new Set(await locateTrace(clickhouse, tenantId, traceId));
  const scope = { tenantId, projectIds: projectIds.filter((id) => projectsOfTrace.has(id)) };
  return { ...paging, scope, filter: { ...filter, traceId } };
}

/**
 * Finds the trace that all matching runs are in, because the filter demands the trace, the run or its parent. If that
 * run is not stored, returns undefined, and the query is not narrowed.
 */
async function findRequiredTrace(clickhouse: ClickHouse, tenantId: string, filter: RunFilter) {
  const traceId = filter.traceId ?? findRequiredId(filter.conditions, 'trace_id');
  if (traceId !== undefined) return traceId;
  const runId =
    filter.parentRunId ?? findRequiredId(filter.conditions, 'id') ?? findRequiredId(filter.conditions, 'parent_run_id');
  return runId === undefined ? undefined : (await locateRun(clickhouse, tenantId, runId))?.traceId;
}

function listDistinctProjects(keys: readonly RunKey[]): string[] {
  return [...new Set(keys.map((key) => key.projectId))];
}

interface Page extends ReadRuns {
  /** The last run that was considered for the page, if more runs follow. */
  readonly last: RunKey | undefined;
}

async function readPage(
  { clickhouse, config }: ReadDeps,
  request: PageRequest,
  read: (keys: readonly RunKey[]) => Promise<ReadRuns>,
): Promise<Page> {
  for (let { after } = request; ; ) {
    const matching = await findPage(clickhouse, { ...request, after });
    const keys = truncateToSize(matching.slice(0, request.limitRows), config.maxPageBytes);
    const last = keys.length < matching.length ? keys.at(-1) : undefined;
    const found = await read(keys);
    // All runs of the page may have been deleted after they were found.
    if (found.rows.length > 0 || last === undefined) return { ...found, last };
    after = last;
  }
}

/** Returns the longest prefix of `found` whose JSON fits into `maxBytes`, but at least one run. */
function truncateToSize(found: readonly FoundRun[], maxBytes: number): FoundRun[] {
  let bytes = 0;
  return found.filter((run, index) => {
    bytes += run.bytes;
    return index === 0 || bytes <= maxBytes;
  });
}
