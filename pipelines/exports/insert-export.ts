import type { LogPosition } from '../../infra/event-log/event-log.ts';
import type { Sql } from '../../infra/postgres/database.ts';

export interface ExportToInsert {
  readonly id: string;
  readonly workspaceId: string;
  readonly destinationId: string;
  readonly projectId: string;
  readonly createdByKeyId: string | null;
  readonly startTime: string;
  readonly endTime: string | null;
  readonly intervalHours: number | null;
  readonly formatVersion: string;
  readonly compression: string;
  readonly exportFields: readonly string[] | null;
  readonly sourceExportId: string | null;
  readonly logPosition: Readonly<Record<string, LogPosition>> | null;
  readonly createdAt: Date;
  readonly membersUntil: Date;
}

/**
 * Inserts the row of an export as CREATED, or of a schedule as RUNNING.
 *
 * @returns whether the row was inserted; false if the schedule has already spawned this interval.
 */
export async function insertExport(sql: Sql, row: ExportToInsert): Promise<boolean> {
  const schedule = row.intervalHours !== null;
  const createdAt = row.createdAt.toISOString();
  const added = await sql.execute(
    `INSERT INTO bulk_exports (id, workspace_id, destination_id, project_id, created_by_key_id, start_time, end_time,
       interval_hours, format, format_version, compression, export_fields, status, status_reason, source_bulk_export_id,
       next_start_time, log_position, members_until, started_at, created_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'Parquet', $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $19)
     ON CONFLICT (source_bulk_export_id, start_time) DO NOTHING`,
    [
      row.id,
      row.workspaceId,
      row.destinationId,
      row.projectId,
      row.createdByKeyId,
      row.startTime,
      row.endTime,
      row.intervalHours,
      row.formatVersion,
      row.compression,
      row.exportFields,
      schedule ? 'RUNNING' : 'CREATED',
      schedule
        ? 'The schedule creates an export for each interval.'
        : 'Waiting for `runlake exports` or `runlake all`, and until all events accepted earlier are stored.',
      row.sourceExportId,
      schedule ? row.startTime : null,
      row.logPosition,
      row.membersUntil.toISOString(),
      schedule ? createdAt : null,
      createdAt,
    ],
  );
  return added > 0;
}
