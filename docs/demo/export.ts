import { setTimeout as pause } from 'node:timers/promises';
import type { RunTree } from 'langsmith/run_trees';
import { ask } from './ask.ts';
import { dayMs, demoDays, firstDay } from './plan.ts';
import type { DemoServer } from './server.ts';
import type { DemoTenants } from './tenants.ts';
import type { Comparison } from './usage.ts';

export interface DemoExports {
  readonly files: number;
  readonly rows: number;
  readonly bytes: number;
  /** Project names by id. */
  readonly projects: ReadonlyMap<string, string>;
}

interface ExportAnswer {
  readonly id: string;
  readonly status: string;
  readonly status_reason: string | null;
  readonly progress: { readonly rows_written: number; readonly bytes_written: number; readonly files: number };
}

const exportedWithinMs = 240_000;

/** Exports every project to the local folder through the API, and waits for the end of all exports. */
export async function exportProjects(server: DemoServer, { workspaceIds }: DemoTenants, nowMs: number) {
  const range = {
    start_time: new Date(firstDay(nowMs)).toISOString(),
    end_time: new Date(firstDay(nowMs) + demoDays * dayMs).toISOString(),
  };
  const projects = new Map<string, string>();
  const begun: { readonly id: string; readonly workspaceId: string }[] = [];
  for (const workspaceId of workspaceIds) {
    const there = inWorkspace(server, workspaceId);
    const destination = await there<{ id: string }>('/bulk-exports/destinations', {
      destination_type: 'local',
      display_name: 'demo',
      config: {},
    });
    for (const { id: projectId, name } of await there<{ id: string; name: string }[]>('/sessions')) {
      projects.set(projectId, name);
      const { id } = await there<ExportAnswer>('/bulk-exports', {
        bulk_export_destination_id: destination.id,
        session_id: projectId,
        format_version: 'v2_beta',
        ...range,
      });
      begun.push({ id, workspaceId });
    }
  }
  const ended: ExportAnswer[] = [];
  const untilMs = Date.now() + exportedWithinMs;
  for (const { id, workspaceId } of begun) ended.push(await completed(server, workspaceId, id, untilMs));
  const total = (of: keyof ExportAnswer['progress']) => ended.reduce((sum, { progress }) => sum + progress[of], 0);
  return { files: total('files'), rows: total('rows_written'), bytes: total('bytes_written'), projects };
}

async function completed(server: DemoServer, workspaceId: string, id: string, untilMs: number): Promise<ExportAnswer> {
  for (;;) {
    const seen = await inWorkspace(server, workspaceId)<ExportAnswer>(`/bulk-exports/${id}`);
    if (seen.status === 'COMPLETED') return seen;
    if (!['CREATED', 'RUNNING'].includes(seen.status) || Date.now() > untilMs) {
      throw new Error(`The export ${id} is ${seen.status}: ${seen.status_reason ?? 'it took too long'}`);
    }
    await pause(100);
  }
}

function inWorkspace({ url, adminKey }: DemoServer, workspaceId: string) {
  return <T>(path: string, body?: object) =>
    ask<T>(`${url}/api/v1${path}`, adminKey, body, { 'x-tenant-id': workspaceId });
}

/** Totals of the exported files by project: the query that the demo prints. */
export const fileQuery = `SELECT session_id, count(*) AS runs, count(*) FILTER (is_root) AS traces,
    count(error) AS failed, sum(total_tokens) AS tokens, round(sum(total_cost::DECIMAL(38, 9)), 2) AS cost,
    median(epoch(end_time - start_time)) FILTER (is_root) AS seconds
  FROM read_parquet('**/*.parquet', hive_partitioning = true)
  GROUP BY ALL ORDER BY runs DESC`;

/** Reads the files with DuckDB, which shares no code with the writer. */
export async function queryFiles(folder: string, { projects }: DemoExports) {
  // Loaded lazily, because only exports need DuckDB.
  const { DuckDBInstance } = await import('@duckdb/node-api');
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  try {
    await connection.run("SET TimeZone = 'UTC'");
    await connection.run(`SET file_search_path = '${folder.replaceAll("'", "''")}'`);
    const summary = await connection.runAndReadAll(fileQuery);
    const rows = await connection.runAndReadAll(
      `SELECT id, trace_id, parent_run_id, session_id, name, run_type, epoch_ms(start_time) AS start_ms,
         epoch_ms(end_time) AS end_ms, inputs, outputs, error
       FROM read_parquet('**/*.parquet', hive_partitioning = true)`,
    );
    return {
      summary: summary.getRowObjectsJson().map((row) => ({ ...row, project: projects.get(String(row.session_id)) })),
      runs: new Map(rows.getRowObjectsJson().map((row) => [String(row.id), exportedRun(row, projects)])),
    };
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

type Row = Readonly<Record<string, unknown>>;

function exportedRun(row: Row, projects: ReadonlyMap<string, string>): string {
  return asText({
    project: projects.get(String(row.session_id)),
    trace: row.trace_id,
    parent: row.parent_run_id,
    name: row.name,
    type: row.run_type,
    startMs: Number(row.start_ms),
    endMs: Number(row.end_ms),
    inputs: JSON.parse(String(row.inputs)),
    outputs: JSON.parse(String(row.outputs)) ?? {},
    error: row.error,
  });
}

/** Compares every run that the SDK sent, with all values, with the exported row of the same id. */
export function compareRuns(runs: readonly RunTree[], exported: ReadonlyMap<string, string>): Comparison {
  const sent = new Map(runs.map((run) => [run.id, sentRun(run)]));
  const ids = [...new Set([...sent.keys(), ...exported.keys()])];
  const differences = ids
    .filter((id) => sent.get(id) !== exported.get(id))
    .map((id) => `${id}: sent ${sent.get(id) ?? 'nothing'}, exported ${exported.get(id) ?? 'nothing'}`);
  return { what: 'in the Parquet files, value by value', figures: ids.length, itemName: 'rows', differences };
}

function sentRun(run: RunTree): string {
  return asText({
    project: run.project_name,
    trace: run.trace_id,
    parent: run.parent_run?.id ?? null,
    name: run.name,
    type: run.run_type,
    startMs: run.start_time,
    endMs: run.end_time,
    inputs: run.inputs,
    outputs: run.outputs ?? {},
    error: run.error ?? null,
  });
}

const asText = (values: object) => JSON.stringify(values);
