import type { LogPosition } from '../../infra/event-log/event-log.ts';
import type { ExportFormat } from './export-scope.ts';
import type { ExportStatus } from './export-states.ts';

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
