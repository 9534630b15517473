import type { LogPosition } from '../../infra/event-log/event-log.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { exportFields, isExportField } from '../../schemas/parquet/run-columns.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { parseRunFilters, type RunFilterConditions } from '../runs/filter/run-filter.ts';
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
  /** Null if all fields are exported. */
  readonly exportFields: readonly string[] | null;
  readonly filter: string | null;
  readonly status: ExportStatus;
  readonly statusReason: string | null;
  /** Id of the schedule that spawned this export; otherwise null. */
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
export function parseMicros(time: string): number {
  return parseTime(time) as number;
}

/**
 * Defines the members of one export run. Every query of an export run uses this scope, which is fixed when the export
 * is created.
 */
export interface ExportScope {
  readonly tenantId: string;
  readonly projectId: string;
  /** Range of the key time, `start_time` in the sorting key of `runs`: from the first time, before the second. */
  readonly window: TimeWindow;
  /** Runs whose first event was received later are not members. */
  readonly membersUntilMicros: number;
  /** The filter of the export. */
  readonly conditions?: RunFilterConditions | undefined;
}

/** Builds the scope that selects the members of an export run. */
export function buildScope(of: ExportRecord, run: Pick<ExportRunRecord, 'startTime' | 'endTime'>): ExportScope {
  return {
    tenantId: of.workspaceId,
    projectId: of.projectId,
    window: { fromMicros: parseMicros(run.startTime), untilMicrosExclusive: parseMicros(run.endTime) },
    membersUntilMicros: parseMicros(of.membersUntil),
    conditions: parseRunFilters({ filter: of.filter }),
  };
}

/** Format of the exported files. */
export interface ExportFormat {
  readonly version: 'v1' | 'v2_beta';
  readonly compression: 'none' | 'gzip' | 'snappy' | 'zstandard';
  /** Column names, in the order of the file. */
  readonly fields: readonly string[];
}

/**
 * Returns the requested fields, and which of them are unknown. If `requested` is null or undefined, returns all fields.
 */
export function resolveFields(requested: readonly string[] | null | undefined): {
  readonly fields: readonly string[];
  readonly unknown: readonly string[];
} {
  if (requested === null || requested === undefined) return { fields: exportFields, unknown: [] };
  return { fields: requested, unknown: requested.filter((name) => !isExportField(name)) };
}

export function toExportFormat({ formatVersion, compression, exportFields }: ExportRecord): ExportFormat {
  return { version: formatVersion, compression, fields: resolveFields(exportFields).fields };
}

/** Minimum number of digits of a part number in a key. Keys with more digits stay unique but no longer sort by part. */
const partDigits = 6;

type ExportIds = Pick<ExportRecord, 'id' | 'workspaceId' | 'projectId'>;

/**
 * Object key of a part of an export run, relative to the prefix of its destination. Keys sort by part, and a part that
 * is written again gets the same key. In v2_beta all folders are `name=value`, the Hive
 * layout.
 */
export function keyOfPart(
  of: ExportIds & Pick<ExportRecord, 'formatVersion'>,
  run: Pick<ExportRunRecord, 'id' | 'startTime'>,
  part: number,
): string {
  const [year, month, day] = run.startTime.slice(0, 10).split('-');
  const resource = of.formatVersion === 'v1' ? 'runs' : 'resource=runs';
  const file = `${run.id}-${String(part).padStart(partDigits, '0')}.parquet`;
  return `${buildExportFolder(of)}/${resource}/year=${year}/month=${month}/day=${day}/${file}`;
}

/** Object key of the manifest. It is in the folder of the export's files, under a name that Hive readers skip. */
export function buildManifestKey(of: ExportIds): string {
  return `${buildExportFolder(of)}/_manifest.json`;
}

/** The folder of all files of an export. */
function buildExportFolder({ id, workspaceId, projectId }: ExportIds): string {
  return `export_id=${id}/tenant_id=${workspaceId}/session_id=${projectId}`;
}

export async function isProjectDeleted(sql: Sql, { projectId, workspaceId }: ExportRecord): Promise<boolean> {
  const [project] = await sql.query('SELECT FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL', [
    projectId,
    workspaceId,
  ]);
  return project === undefined;
}
