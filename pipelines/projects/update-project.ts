import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { violatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import {
  extraColumns,
  type ProjectRecord,
  type ProjectRow,
  projectColumns,
  toProjectRecord,
} from './project-record.ts';
import type { ProjectResolver } from './resolve-project.ts';

/** Absent and null fields stay unchanged. */
export interface ProjectChange {
  readonly name?: string | null | undefined;
  readonly description?: string | null | undefined;
  readonly extra?: Readonly<Record<string, unknown>> | null | undefined;
  readonly endTime?: string | null | undefined;
  readonly defaultDatasetId?: string | null | undefined;
  readonly traceTier?: string | null | undefined;
}

/**
 * Changes a project. Its former name is stored, so that patches that still contain it find the project.
 *
 * @throws NOT_FOUND if the workspace has no project with this id, or it is deleted, CONFLICT if the new name is taken.
 */
export async function updateProject(
  { database, projects }: { database: Database; projects: ProjectResolver },
  workspaceId: string,
  projectId: string,
  change: ProjectChange,
): Promise<ProjectRecord> {
  const [extra, metadata] = extraColumns(change.extra);
  const changed = await database
    .transaction(async (tx) => {
      const [before] = await tx.query<{ name: string }>(
        'SELECT name FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL FOR UPDATE',
        [projectId, workspaceId],
      );
      if (!before) throw runlakeError('NOT_FOUND', { what: 'Session' });
      if (change.name && change.name !== before.name) {
        await tx.execute(
          `INSERT INTO project_former_names (workspace_id, name, project_id) VALUES ($1, $2, $3)
           ON CONFLICT (workspace_id, name) DO UPDATE SET project_id = excluded.project_id, until = now()`,
          [workspaceId, before.name, projectId],
        );
      }
      const [row] = await tx.query<ProjectRow>(
        `UPDATE projects SET
           name = coalesce($2, name),
           description = coalesce($3, description),
           extra = coalesce($4, extra),
           metadata = coalesce($5::jsonb, metadata),
           end_time = coalesce($6, end_time),
           default_dataset_id = coalesce($7, default_dataset_id),
           trace_tier = coalesce($8, trace_tier),
           updated_at = now()
         WHERE id = $1 RETURNING ${projectColumns}`,
        [
          projectId,
          change.name ?? null,
          change.description ?? null,
          extra,
          metadata,
          change.endTime ?? null,
          change.defaultDatasetId ?? null,
          change.traceTier ?? null,
        ],
      );
      return toProjectRecord(row!);
    })
    .catch((error: unknown) => {
      const taken = violatedConstraint(error) === 'projects_by_name';
      throw taken
        ? runlakeError('CONFLICT', { reason: 'A session with this name already exists.' }, { cause: error })
        : error;
    });
  if (change.name) projects.forget();
  return changed;
}
