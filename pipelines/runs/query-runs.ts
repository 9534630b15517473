import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import {
  createChunkMemory,
  type RunInChunk,
  reserveTexts,
  runWithMemory,
} from '../../infra/fairness/tenant-context.ts';
import { splitIntoChunks } from '../../infra/postgres/page-within.ts';
import { findRequiredId } from './filter/run-filter.ts';
import { findPage } from './find-page.ts';
import type { FoundRun, PageRequest } from './key-query.ts';
import { locateRun, locateRuns, locateTrace, type ReadDeps, readLiveProjectIds } from './locate-run.ts';
import { readCursor, writeCursor } from './page-cursor.ts';
import { type LoadedRuns, readRuns } from './read-runs.ts';
import type { Order, RunColumn, RunKey } from './run-columns.ts';
import type { TracedRunRow } from './run-rows.ts';
import type { RunFilter } from './run-scope.ts';
import { JsonChunks, type Selection, writeRun } from './write-runs.ts';

export interface RunQuery {
  readonly tenantId: string;
  /** If present, only these runs are read, regardless of their time. */
  readonly runIds?: readonly string[] | undefined;
  /** Default: all projects of the workspace that are not deleted. */
  readonly projectIds?: readonly string[] | undefined;
  readonly filter: RunFilter;
  readonly selected: Selection;
  readonly order: Order;
  /** Maximum number of runs, at least 1. */
  readonly limitRows: number;
  readonly cursor?: string | undefined;
}

/** JSON that surrounds the list of runs of a page. */
export interface PageEnvelope {
  readonly before: string;
  /** Returns the JSON after the list. @param next Cursor of the next page; null if there is none. */
  after(next: string | null): string;
}

export const v1Envelope: PageEnvelope = {
  before: '{"runs":',
  after: (next) => `,"cursors":{"next":${JSON.stringify(next)}},"search_cursors":null,"parsed_query":null}`,
};

export const v2Envelope: PageEnvelope = {
  before: '{"items":',
  after: (next) => `,"next_cursor":${JSON.stringify(next)},"has_more":${next !== null}}`,
};

/** Number of runs that {@link listRuns} reads at once. */
const rowsPerListRead = 2_500;

/** Envelope of a response that is only the list of runs. */
export const listEnvelope: PageEnvelope = { before: '', after: () => '' };

/** Envelope of a response of version 2 without pages. */
export const v2ListEnvelope: PageEnvelope = { before: '{"items":', after: () => '}' };

/**
 * Reads a page of runs as a JSON list in an envelope. If a column of any length is selected, the page ends early, with a
 * cursor, when the stored size of its runs exceeds `maxPageBytes`, but not before the first run. A page with a cursor is
 * never empty, because clients would stop at an empty page.
 *
 * @throws BAD_REQUEST for an invalid cursor; errors of the stores.
 */
export async function queryRuns(deps: ReadDeps, query: RunQuery, envelope: PageEnvelope): Promise<Buffer> {
  const { selected } = query;
  const request = await buildPageRequest(deps, query);
  const { found, last } = await readPage(deps, request, query);
  const json = new JsonChunks();
  json.add(`${envelope.before}[`);
  writeRuns(json, found, selected);
  json.add(`]${envelope.after(last ? writeCursor({ order: query.order, after: last }) : null)}`);
  return json.toBuffer();
}

/**
 * Reads all matching runs, page by page, with `limitRows` runs per page, as parsed JSON.
 *
 * @throws errors of the stores.
 */
export async function* readAllRuns<Run>(deps: ReadDeps, query: Omit<RunQuery, 'cursor'>): AsyncGenerator<Run> {
  for (let cursor: string | undefined; ; ) {
    // Nothing is reserved: the memory of each page is released before the next is read.
    const page = await runWithMemory(
      () => {},
      () => queryRuns(deps, { ...query, cursor }, v1Envelope),
    );
    const { runs, cursors } = JSON.parse(page.toString()) as { runs: Run[]; cursors: { next: string | null } };
    yield* runs;
    if (cursors.next === null) return;
    cursor = cursors.next;
  }
}

/** Reads the newest matching run, as JSON. @throws NOT_FOUND; errors of the stores. */
export async function readOneRun(deps: ReadDeps, query: Omit<RunQuery, 'limitRows' | 'order'>): Promise<Buffer> {
  const list = await queryRuns(deps, { ...query, order: 'desc', limitRows: 1 }, listEnvelope);
  if (list.length === 2) throw runlakeError('NOT_FOUND', { what: `Run ${query.runIds?.join(', ') ?? ''}`.trimEnd() });
  return list.subarray(1, -1);
}

/**
 * Reads all matching runs, without pages, as a JSON list in an envelope. Use this function only for queries that are
 * limited to one trace.
 *
 * @throws BAD_REQUEST if the response has more than one run and exceeds `maxPageBytes`; errors of the stores.
 */
export async function listRuns(
  deps: ReadDeps,
  query: Omit<RunQuery, 'limitRows' | 'cursor'>,
  envelope: PageEnvelope,
): Promise<Buffer> {
  const { selected } = query;
  let request = await buildPageRequest(deps, { ...query, limitRows: rowsPerListRead });
  const json = new JsonChunks();
  json.add(`${envelope.before}[`);
  for (let count = 0; ; ) {
    const { found, last } = await readPage(deps, request, query);
    if (count > 0 && found.rows.length > 0) json.add(',');
    count += found.rows.length;
    writeRuns(json, found, selected, () => {
      if (json.bytes > deps.config.maxPageBytes && (last !== undefined || count > 1)) {
        throw runlakeError('BAD_REQUEST', {
          reason: 'The runs are too large for one response. Query runs with trace_id, which returns pages.',
        });
      }
    });
    if (last === undefined) break;
    request = { ...request, after: last };
  }
  json.add(`]${envelope.after(null)}`);
  return json.toBuffer();
}

/** Maximum total size of the runs that {@link tryReadEachRun} keeps in memory. */
const maxReadBytes = 64 * 1024 * 1024;

interface ReadRun {
  readonly row: TracedRunRow;
  readonly json: string;
}

/**
 * Reads all matching runs, each with its JSON text. Intended for the runs of few examples, and for the sources of examples.
 *
 * @throws BAD_REQUEST if the runs are too large for one response; errors of the stores.
 */
export async function readEachRun(deps: ReadDeps, query: Omit<RunQuery, 'limitRows' | 'cursor'>): Promise<ReadRun[]> {
  const runs = await tryReadEachRun(deps, query);
  if (runs !== undefined) return runs;
  throw runlakeError('BAD_REQUEST', {
    reason: `The runs that are read together are larger than ${maxReadBytes / 1024 ** 2} MiB.`,
  });
}

/** Like {@link readEachRun}, but returns undefined if the runs are too large. */
export async function tryReadEachRun(
  deps: ReadDeps,
  query: Omit<RunQuery, 'limitRows' | 'cursor'>,
): Promise<ReadRun[] | undefined> {
  const { selected } = query;
  let request = await buildPageRequest(deps, { ...query, limitRows: rowsPerListRead });
  const runs: ReadRun[] = [];
  for (let bytes = 0; ; ) {
    const { found, last } = await readPage(deps, request, query);
    for (const row of found.rows) {
      const json = new JsonChunks();
      writeRun(json, row, selected, found.related);
      const text = json.toBuffer();
      bytes += text.length;
      if (bytes > maxReadBytes) return undefined;
      runs.push({ row, json: text.toString('utf8') });
    }
    if (last === undefined) return runs;
    request = { ...request, after: last };
  }
}

/** Maximum stored size of the runs that {@link readRunsInChunks} has in memory. */
const maxChunkBytes = 16 * 1024 * 1024;

/**
 * Reads runs with their JSON texts, in the order of `runIds`. If they are large, reads them in several chunks, each as the
 * caller asks for it. Reserves as much memory as the largest chunk needs, before the first.
 *
 * @throws OVERLOADED if there is no memory for the largest chunk; errors of the stores.
 */
export async function* readRunsInChunks(
  deps: ReadDeps,
  { tenantId, runIds, selected }: Pick<RunQuery, 'tenantId' | 'selected'> & { readonly runIds: readonly string[] },
  runInChunk: RunInChunk = createChunkMemory(),
): AsyncGenerator<(readonly [runId: string, json: string])[]> {
  const query = { tenantId, runIds, filter: {}, order: 'asc', limitRows: runIds.length, selected } as const;
  const found = new Map(
    (await findPage(deps.clickhouse, await buildPageRequest(deps, query))).map((run) => [run.runId, run]),
  );
  const chunks = splitIntoChunks(
    runIds.flatMap((runId) => found.get(runId) ?? []),
    maxChunkBytes,
  );
  const largestBytes = Math.max(0, ...chunks.map((chunk) => chunk.reduce((sum, { bytes }) => sum + bytes, 0)));
  for (const chunk of chunks) {
    const { rows, related } = await runInChunk(() => {
      reserveTexts(largestBytes);
      return readRuns(deps, tenantId, chunk, selected);
    });
    const rowsById = new Map(rows.map((row) => [row.key.runId, row]));
    yield chunk.flatMap(({ runId }) => {
      const row = rowsById.get(runId);
      if (row === undefined) return [];
      const json = new JsonChunks();
      writeRun(json, row, selected, related);
      return [[runId, json.toBuffer().toString('utf8')] as const];
    });
  }
}

/** @param check called after each run. */
function writeRuns(json: JsonChunks, { rows, related }: LoadedRuns, selected: Selection, check = () => {}): void {
  for (const [index, row] of rows.entries()) {
    if (index > 0) json.add(',');
    writeRun(json, row, selected, related);
    check();
  }
}

async function buildPageRequest(deps: ReadDeps, query: RunQuery): Promise<PageRequest> {
  const { order, limitRows, cursor } = query;
  const after = cursor === undefined ? undefined : readCursor(cursor, order).after;
  return { order, limitRows, after, ...(await findRunSet(deps, query)) };
}

/**
 * Determines what a query has to read, with a scope that is as narrow as the ids of the query allow.
 *
 * @throws errors of the stores.
 */
export async function findRunSet(
  { clickhouse, database }: Pick<ReadDeps, 'clickhouse' | 'database'>,
  { tenantId, runIds, projectIds, filter }: Pick<RunQuery, 'tenantId' | 'runIds' | 'projectIds' | 'filter'>,
): Promise<Pick<PageRequest, 'scope' | 'filter' | 'among'>> {
  if (runIds !== undefined) {
    const located = await locateRuns(clickhouse, tenantId, runIds);
    const requested = projectIds === undefined ? undefined : new Set(projectIds);
    const projectsOfRuns = [...new Set(located.map(({ projectId }) => projectId))].filter(
      (id) => requested?.has(id) ?? true,
    );
    const live = new Set(await readLiveProjectIds(database, tenantId, projectsOfRuns));
    const among = located.filter((key) => live.has(key.projectId));
    return { scope: { tenantId, projectIds: [...live] }, filter, among };
  }
  const liveIds = await readLiveProjectIds(database, tenantId, projectIds);
  const traceId = await findRequiredTrace(clickhouse, tenantId, filter);
  if (traceId === undefined) return { scope: { tenantId, projectIds: liveIds }, filter };
  const projectsOfTrace = new Set(await locateTrace(clickhouse, tenantId, traceId));
  const scope = { tenantId, projectIds: liveIds.filter((id) => projectsOfTrace.has(id)) };
  return { scope, filter: { ...filter, traceId } };
}

/**
 * Finds the trace that contains all matching runs, if the filter requires the trace, the run or its parent. If that run
 * is not stored, returns undefined, and the query is not narrowed.
 */
async function findRequiredTrace(clickhouse: ClickHouse, tenantId: string, filter: RunFilter) {
  const traceId = filter.traceId ?? findRequiredId(filter.conditions, 'trace_id');
  if (traceId !== undefined) return traceId;
  const runId =
    filter.parentRunId ?? findRequiredId(filter.conditions, 'id') ?? findRequiredId(filter.conditions, 'parent_run_id');
  return runId === undefined ? undefined : (await locateRun(clickhouse, tenantId, runId))?.traceId;
}

/** Columns whose values can have any length. */
const longColumns = [
  'name',
  'tags',
  'inputs',
  'outputs',
  'error',
  'events',
  'extra',
  'serialized',
  'metadata',
  'threadId',
  'usageDetails',
] as const satisfies RunColumn[];

interface Page {
  readonly found: LoadedRuns;
  /** The last run that was considered for the page, if more runs follow. */
  readonly last: RunKey | undefined;
}

async function readPage(
  deps: ReadDeps,
  request: PageRequest,
  { tenantId, selected }: Pick<RunQuery, 'tenantId' | 'selected'>,
): Promise<Page> {
  const isLong = longColumns.some((column) => selected.columns.has(column));
  const maxBytes = isLong ? deps.config.maxPageBytes : Number.POSITIVE_INFINITY;
  for (let { after } = request; ; ) {
    const matching = await findPage(deps.clickhouse, { ...request, after });
    const keys = truncateToSize(matching.slice(0, request.limitRows), maxBytes);
    const last = keys.length < matching.length ? keys.at(-1) : undefined;
    const found = await readRuns(deps, tenantId, keys, selected);
    reserveTexts(measureTexts(found, selected));
    // All runs of the page may have been deleted after they were found.
    if (found.rows.length > 0 || last === undefined) return { found, last };
    after = last;
  }
}

/** Returns the size of the texts of any length that were read. */
function measureTexts({ rows }: LoadedRuns, { columns }: Selection): number {
  const selected = longColumns.filter((column) => columns.has(column));
  let bytes = 0;
  for (const row of rows) for (const column of selected) bytes += row.bytes(column)?.length ?? 0;
  return bytes;
}

/** Returns the longest prefix of `found` whose JSON fits into `maxBytes`, but at least one run. */
function truncateToSize(found: readonly FoundRun[], maxBytes: number): FoundRun[] {
  let bytes = 0;
  return found.filter((run, index) => {
    bytes += run.bytes;
    return index === 0 || bytes <= maxBytes;
  });
}
