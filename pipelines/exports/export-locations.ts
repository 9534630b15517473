import type { Sql } from '../../infra/postgres/database.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { resolveFields } from './export-fields.ts';
import type { ExportRecord } from './export-record.ts';
import type { ExportFormat, ExportScope } from './export-scope.ts';
import { exportFolder, partKey } from './files/part-key.ts';
import type { ExportRunRecord } from './runs/run-record.ts';

/** Microseconds since 1970 of a time as read from the database. */
export function microsOf(time: string): number {
  return parseTime(time) as number;
}

/** The scope of an export run: which runs belong to it. */
export function scopeOf(of: ExportRecord, run: Pick<ExportRunRecord, 'startTime' | 'endTime'>): ExportScope {
  return {
    tenantId: of.workspaceId,
    projectId: of.projectId,
    window: { fromMicros: microsOf(run.startTime), untilMicrosExclusive: microsOf(run.endTime) },
    membersUntilMicros: microsOf(of.membersUntil),
  };
}

export function formatOf({ formatVersion, compression, exportFields }: ExportRecord): ExportFormat {
  return { version: formatVersion, compression, fields: resolveFields(exportFields).fields };
}

/** Object key of a part of an export run. */
export function keyOfPart(of: ExportRecord, run: Pick<ExportRunRecord, 'id' | 'startTime'>, part: number): string {
  return partKey({
    exportId: of.id,
    tenantId: of.workspaceId,
    projectId: of.projectId,
    version: of.formatVersion,
    dayMicros: microsOf(run.startTime),
    runId: run.id,
    part,
  });
}

/** Object key of the manifest: in the folder of the export's files, under a name that Hive readers skip. */
export function keyOfManifest({ id, workspaceId, projectId }: ExportRecord): string {
  return `${exportFolder({ exportId: id, tenantId: workspaceId, projectId })}/_manifest.json`;
}

export async function isProjectDeleted(sql: Sql, { projectId, workspaceId }: ExportRecord): Promise<boolean> {
  const [project] = await sql.query('SELECT FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL', [
    projectId,
    workspaceId,
  ]);
  return project === undefined;
}
