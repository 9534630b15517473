import type { LogPosition } from '../../infra/event-log/event-log.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { exportFields, isExportField } from '../../schemas/parquet/run-columns.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { parseRunFilters } from '../runs/filter/run-filter.ts';
import type { RunFilterConditions } from '../runs/filter/sql-terms.ts';
import type { TimeWindow } from '../runs/run-columns.ts';

/** States of bulk exports and export runs. */
export const exportStatuses = ['CREATED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMEDOUT'] as const;

export type ExportStatus = (typeof exportStatuses)[number];

/** A row of `bulk_exports`. Times are ISO 8601 with microseconds. */
export interface ExportRecord {
  readonly id: string;
  readonly workspaceId: string;
  readonly destinationId: string;
  readonly projectId: string;
  readonly startTime: string;
  /** Exclusive end of the time range. Null for schedules. */
  readonly endTime: string | null;
  /** Interval of a schedule. Null for exports that are not schedules. */
  readonly intervalHours: number | null;
  readonly format: string;
  readonly formatVersion: ExportFormat['version'];
  readonly compression: ExportFormat['compression'];
  /** Fields to export. Null if all fields are exported. */
  readonly exportFields: readonly string[] | null;
  readonly filter: string | null;
  readonly status: ExportStatus;
  readonly statusReason: string | null;
  /** Id of the schedule that spawned this export; null if no schedule spawned it. */
  readonly sourceExportId: string | null;
  readonly nextStartTime: string | null;
  /** Log-end offsets at the creation of the export, by topic. Null for schedules. */
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

/** Converts a time, as read from the database, to microseconds since 1970. */
export function parseMicros(time: string): number {
  return parseTime(time) as number;
}

/**
 * Defines the members of one export run. All queries of an export run use this scope, which is fixed when the export is
 * created.
 */
export interface ExportScope {
  readonly tenantId: string;
  readonly projectId: string;
  /** Range of the key time (`start_time` in the sorting key of `runs`). The start is inclusive, the end exclusive. */
  readonly window: TimeWindow;
  /** Runs whose first event was received after this time are not members. */
  readonly membersUntilMicros: number;
  /** Conditions of the export's filter. */
  readonly conditions?: RunFilterConditions | undefined;
}

/** Builds the scope that selects the members of an export run. */
export function buildScope(
  of: ExportRecord,
  run: { readonly startTime: string; readonly endTime: string },
): ExportScope {
  return {
    tenantId: of.workspaceId,
    projectId: of.projectId,
    window: { fromMicros: parseMicros(run.startTime), untilMicrosExclusive: parseMicros(run.endTime) },
    membersUntilMicros: parseMicros(of.membersUntil),
    conditions: parseRunFilters({ filter: of.filter }),
  };
}

export interface ExportFormat {
  readonly version: 'v1' | 'v2_beta';
  readonly compression: 'none' | 'gzip' | 'snappy' | 'zstandard';
  /** Column names in the order in which they appear in the file. */
  readonly fields: readonly string[];
}

/**
 * Returns the requested fields, and lists those that are unknown. If `requested` is null or undefined, returns all
 * fields.
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

/**
 * Minimum number of digits of a part number in an object key. Keys with more digits are still unique but no longer sort
 * by part number.
 */
const partDigits = 6;

type ExportIds = Pick<ExportRecord, 'id' | 'workspaceId' | 'projectId'>;

/**
 * Returns the object key of a part of an export run, relative to the prefix of its destination. Keys sort by part
 * number, and a part that is written again gets the same key. In v2_beta all folder names have the form `name=value`,
 * which is the Hive layout.
 */
export function buildPartKey(
  of: ExportIds & Pick<ExportRecord, 'formatVersion'>,
  run: { readonly id: string; readonly startTime: string },
  part: number,
): string {
  const [year, month, day] = run.startTime.slice(0, 10).split('-');
  const resource = of.formatVersion === 'v1' ? 'runs' : 'resource=runs';
  const file = `${run.id}-${String(part).padStart(partDigits, '0')}.parquet`;
  return `${buildExportFolder(of)}/${resource}/year=${year}/month=${month}/day=${day}/${file}`;
}

/**
 * Returns the object key of the manifest. The manifest is in the folder that contains the files of the export, under a
 * name that Hive readers skip.
 */
export function buildManifestKey(of: ExportIds): string {
  return `${buildExportFolder(of)}/_manifest.json`;
}

/** Returns the folder that contains all files of an export. */
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
