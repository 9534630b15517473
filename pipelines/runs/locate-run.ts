import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { reserveTexts } from '../../infra/fairness/tenant-context.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { readRuns } from './read-runs.ts';
import type { RunExtras, RunKey } from './run-columns.ts';
import { JsonChunks, type Selection, writeRun } from './write-runs.ts';

export interface ReadDeps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly extras: RunExtras;
  readonly config: Pick<Config, 'maxPageBytes'>;
}

/** Key of a run, and the start time of its trace. */
export interface LocatedRun extends RunKey {
  readonly traceTimeMicros: number;
}

interface LocatorRow {
  readonly id: string;
  readonly micros: number;
  readonly trace_id: string;
  readonly trace_micros: number;
  readonly session_id: string;
}

/**
 * Finds runs of a workspace by id; ids that are not stored are omitted. Returns expired runs too, because locations
 * outlive their runs.
 */
export function locateRuns(clickhouse: ClickHouse, tenantId: string, runIds: readonly string[]): Promise<LocatedRun[]> {
  return readLocator(clickhouse, tenantId, runIds, '');
}

/** Like {@link locateRuns}, without expired runs. */
export function locateLiveRuns(
  clickhouse: ClickHouse,
  tenantId: string,
  runIds: readonly string[],
): Promise<LocatedRun[]> {
  return readLocator(clickhouse, tenantId, runIds, 'HAVING max(expires_at) > now()');
}

async function readLocator(
  clickhouse: ClickHouse,
  tenantId: string,
  runIds: readonly string[],
  havingSql: string,
): Promise<LocatedRun[]> {
  if (runIds.length === 0) return [];
  const rows = await clickhouse.query<LocatorRow>({
    name: 'locate-runs',
    settings: lookupSettings,
    sql: `SELECT id, (min(pick) AS first).3 AS trace_id, toUnixTimestamp64Micro(first.2) AS micros,
            toUnixTimestamp64Micro(first.4) AS trace_micros, first.5 AS session_id
          FROM run_locator
          WHERE tenant_id = {tenant:UUID} AND id IN ids
          GROUP BY id ${havingSql}`,
    params: { tenant: tenantId },
    externalTable: { name: 'ids', structure: 'id UUID', rows: [...new Set(runIds)].map((id) => [id]) },
  });
  return rows.map((row) => ({
    runId: row.id,
    startTimeMicros: row.micros,
    traceId: row.trace_id,
    traceTimeMicros: row.trace_micros,
    projectId: row.session_id,
  }));
}

/**
 * Finds the traces of runs of any workspaces, by workspace and run (`tenantId runId`). Runs that are not stored are
 * omitted.
 */
export async function locateRunsOfTenants(
  clickhouse: ClickHouse,
  runs: readonly { readonly tenantId: string; readonly runId: string }[],
): Promise<ReadonlyMap<string, string>> {
  if (runs.length === 0) return new Map();
  const rows = await clickhouse.query<{ tenant_id: string; id: string; trace_id: string }>({
    name: 'locate-runs-of-tenants',
    settings: lookupSettings,
    sql: `SELECT tenant_id, id, min(pick).3 AS trace_id FROM run_locator
          WHERE (tenant_id, id) IN keys GROUP BY tenant_id, id`,
    externalTable: {
      name: 'keys',
      structure: 'tenant_id UUID, id UUID',
      rows: runs.map(({ tenantId, runId }) => [tenantId, runId]),
    },
  });
  return new Map(rows.map((row) => [`${row.tenant_id} ${row.id}`, row.trace_id]));
}

/** Finds one run; returns undefined if the run is not stored (yet). */
export async function locateRun(
  clickhouse: ClickHouse,
  tenantId: string,
  runId: string,
): Promise<LocatedRun | undefined> {
  return (await locateRuns(clickhouse, tenantId, [runId]))[0];
}

/** Finds the project of a trace. Returns an empty list if the trace is not stored (yet). */
export async function locateTrace(clickhouse: ClickHouse, tenantId: string, traceId: string): Promise<string[]> {
  const rows = await clickhouse.query<{ session_id: string }>({
    name: 'locate-trace',
    sql: `SELECT argMin(session_id, version) AS session_id FROM trace_locations
          WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} GROUP BY trace_id`,
    params: { tenant: tenantId, trace: traceId },
  });
  return rows.map((row) => row.session_id);
}

/** Finds the project of a trace. Returns an empty list if the trace is not stored, or if the project is deleted. */
export async function findLiveProjects(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Database },
  tenantId: string,
  traceId: string,
): Promise<string[]> {
  return readLiveProjectIds(database, tenantId, await locateTrace(clickhouse, tenantId, traceId));
}

/**
 * Reads the ids of the projects of a workspace that are not deleted, restricted to `among` if it is given.
 *
 * @throws errors of the database.
 */
export async function readLiveProjectIds(
  database: Database,
  workspaceId: string,
  among?: readonly string[],
): Promise<string[]> {
  const rows = await database.query<{ id: string }>(
    `SELECT id FROM projects
     WHERE workspace_id = $1 AND deleted_at IS NULL AND ($2::uuid[] IS NULL OR id = ANY ($2::uuid[]))`,
    [workspaceId, among ?? null],
    { name: 'live-projects' },
  );
  return rows.map((row) => row.id);
}

/**
 * Checks that projects exist.
 *
 * @throws NOT_FOUND if one of `projectIds` is not a project of the workspace, or is deleted.
 */
export async function requireProjects(
  database: Database,
  workspaceId: string,
  projectIds: readonly string[],
): Promise<string[]> {
  const live = await readLiveProjectIds(database, workspaceId, projectIds);
  const found = new Set(live);
  const missing = projectIds.find((id) => !found.has(id));
  if (missing !== undefined) throw runlakeError('NOT_FOUND', { what: `Project ${missing}` });
  return live;
}

/** Reads the ids of the projects (experiments) on a dataset. */
export async function readDatasetProjectIds(
  database: Database,
  workspaceId: string,
  datasetId: string,
): Promise<string[]> {
  const rows = await database.query<{ id: string }>(
    'SELECT id FROM projects WHERE workspace_id = $1 AND reference_dataset_id = $2 AND deleted_at IS NULL',
    [workspaceId, datasetId],
  );
  return rows.map((row) => row.id);
}

export interface NamedRun {
  readonly tenantId: string;
  readonly runId: string;
  /** If present, the run must be in this project. */
  readonly projectId?: string | undefined;
  /** If present, the run must be in this trace. */
  readonly traceId?: string | undefined;
}

/**
 * Reads the selected fields of one run, as JSON.
 *
 * @throws NOT_FOUND if the workspace has no such run, or if the run or its project was deleted; errors of the stores.
 */
export async function getRun(
  deps: ReadDeps,
  { selected, ...run }: NamedRun & { readonly selected: Selection },
): Promise<Buffer> {
  const { tenantId, runId } = run;
  const key = await locateRun(deps.clickhouse, tenantId, runId);
  if (
    key === undefined ||
    key.projectId !== (run.projectId ?? key.projectId) ||
    key.traceId !== (run.traceId ?? key.traceId)
  )
    throw createNotFoundError(runId);
  const [live, { rows, related }] = await Promise.all([
    readLiveProjectIds(deps.database, tenantId, [key.projectId]),
    readRuns(deps, tenantId, [key], selected),
  ]);
  const [row] = rows;
  if (live.length === 0 || row === undefined) throw createNotFoundError(runId);
  const json = new JsonChunks();
  writeRun(json, row, selected, related);
  reserveTexts(json.bytes);
  return json.toBuffer();
}

function createNotFoundError(runId: string): Error {
  return runlakeError('NOT_FOUND', { what: `Run ${runId}` });
}
