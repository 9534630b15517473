import type { LogPosition } from '../../infra/event-log/event-log.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { exportFields, isExportField } from '../../schemas/parquet/run-columns.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import type { TimeWindow } from '../runs/run-columns.ts';
import type { ExportRunRecord } from './checkpoint.ts';
import type { ExportStatus } from './states.ts';

/** A row of `bulk_exports`. Times are ISO 8601 with microseconds. */
export interface ExportRecord {
  readonly id: string;
  readonly workspaceId: string;
  readonly destinationId: string;
  readonly projectId: string;
  readonly startTime: string;
  /** Exclusive. Null for schedules. */
  readonly endTime: string | null;
  /** Null for exports that are not schedules. */
  readonly intervalHours: number | null;
  readonly format: string;
  readonly formatVersion: ExportFormat['version'];
  readonly compression: ExportFormat['compression'];
  /** Null: all fields. */
  readonly exportFields: readonly string[] | null;
  readonly filter: string | null;
  readonly status: ExportStatus;
  readonly statusReason: string | null;
  /** The schedule that spawned it. */
  readonly sourceExportId: string | null;
  readonly nextStartTime: string | null;
  /** Log-end offsets at creation, by topic. Null for schedules. */
  readonly logPosition: Readonly<Record<string, LogPosition>> | null;
  readonly membersUntil: string;
  readonly startedAt: string | null;
  readonly manifestAt: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly finishedAt: string | null;
}

/** Select list of an {@link ExportRecord} from `bulk_exports AS e`. */
export const exportColumns = `e.id, e.workspace_id AS "workspaceId", e.destination_id AS "destinationId",
  e.project_id AS "projectId", e.start_time AS "startTime", e.end_time AS "endTime", e.interval_hours AS "intervalHours",
  e.format, e.format_version AS "formatVersion", e.compression, e.export_fields AS "exportFields", e.filter, e.status,
  e.status_reason AS "statusReason", e.source_bulk_export_id AS "sourceExportId", e.next_start_time AS "nextStartTime",
  e.log_position AS "logPosition", e.members_until AS "membersUntil", e.started_at AS "startedAt",
  e.manifest_at AS "manifestAt", e.created_at AS "createdAt", e.updated_at AS "updatedAt", e.finished_at AS "finishedAt"`;

/** Microseconds since 1970 of a time as read from the database. */
export function microsOf(time: string): number {
  return parseTime(time) as number;
}

/** Which runs belong to one export run, frozen when the export was created. Every query of an export is bound to it. */
export interface ExportScope {
  readonly tenantId: string;
  readonly projectId: string;
  /** By key time, half-open. */
  readonly window: TimeWindow;
  /** Runs whose first event was received later are not members. */
  readonly membersUntilMicros: number;
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

/** Format of the exported files. */
export interface ExportFormat {
  readonly version: 'v1' | 'v2_beta';
  readonly compression: 'none' | 'gzip' | 'snappy' | 'zstandard';
  /** Column names, in the order of the file. */
  readonly fields: readonly string[];
}

/** The requested fields, and those of them that are unknown. All fields if none are requested. */
export function resolveFields(requested: readonly string[] | null | undefined): {
  readonly fields: readonly string[];
  readonly unknown: readonly string[];
} {
  if (requested === null || requested === undefined) return { fields: exportFields, unknown: [] };
  return { fields: requested, unknown: requested.filter((name) => !isExportField(name)) };
}

export function formatOf({ formatVersion, compression, exportFields }: ExportRecord): ExportFormat {
  return { version: formatVersion, compression, fields: resolveFields(exportFields).fields };
}

/** With more digits keys stay unique but no longer sort by part. */
const partDigits = 6;

type Located = Pick<ExportRecord, 'id' | 'workspaceId' | 'projectId'>;

/**
 * Object key of a part of an export run, relative to the prefix of its destination. Keys sort by part, and writing a
 * part again uses the same key. Source: SPEC 4.3 rule 2; in v2_beta all folders are `name=value`, the Hive layout.
 */
export function keyOfPart(
  of: Located & Pick<ExportRecord, 'formatVersion'>,
  run: Pick<ExportRunRecord, 'id' | 'startTime'>,
  part: number,
): string {
  const [year, month, day] = run.startTime.slice(0, 10).split('-');
  const resource = of.formatVersion === 'v1' ? 'runs' : 'resource=runs';
  const file = `${run.id}-${String(part).padStart(partDigits, '0')}.parquet`;
  return `${folderOf(of)}/${resource}/year=${year}/month=${month}/day=${day}/${file}`;
}

/** Object key of the manifest: in the folder of the export's files, under a name that Hive readers skip. */
export function keyOfManifest(of: Located): string {
  return `${folderOf(of)}/_manifest.json`;
}

/** The folder of all files of an export. */
function folderOf({ id, workspaceId, projectId }: Located): string {
  return `export_id=${id}/tenant_id=${workspaceId}/session_id=${projectId}`;
}

export async function isProjectDeleted(sql: Sql, { projectId, workspaceId }: ExportRecord): Promise<boolean> {
  const [project] = await sql.query('SELECT FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL', [
    projectId,
    workspaceId,
  ]);
  return project === undefined;
}
