import type { Database } from '../../infra/postgres/database.ts';
import type { ExportStatus } from './export-states.ts';
import { type ExportWithProgress, exportsWithProgress } from './read-export.ts';

export interface ExportFilter {
  readonly statuses?: readonly ExportStatus[] | undefined;
  readonly destinationId?: string | undefined;
  readonly projectId?: string | undefined;
  /** Only exports that this schedule spawned. */
  readonly sourceExportId?: string | undefined;
  /** True: only schedules. False: only other exports. */
  readonly scheduled?: boolean | undefined;
  readonly limit: number;
  readonly offset: number;
}

/** Exports and schedules of a workspace, newest first. */
export function listExports(
  database: Database,
  workspaceId: string,
  filter: ExportFilter,
): Promise<ExportWithProgress[]> {
  const { statuses, destinationId, projectId, sourceExportId, scheduled, limit, offset } = filter;
  return database.query<ExportWithProgress>(
    `${exportsWithProgress}
     WHERE e.workspace_id = $1 AND ($2::text[] IS NULL OR e.status = ANY ($2))
       AND ($3::uuid IS NULL OR e.destination_id = $3) AND ($4::uuid IS NULL OR e.project_id = $4)
       AND ($5::uuid IS NULL OR e.source_bulk_export_id = $5)
       AND ($6::boolean IS NULL OR (e.interval_hours IS NOT NULL) = $6)
     ORDER BY e.created_at DESC, e.id DESC LIMIT $7 OFFSET $8`,
    [
      workspaceId,
      statuses ?? null,
      destinationId ?? null,
      projectId ?? null,
      sourceExportId ?? null,
      scheduled ?? null,
      limit,
      offset,
    ],
  );
}
