import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import {
  extraColumns,
  type ProjectRecord,
  type ProjectRow,
  projectColumns,
  toProjectRecord,
} from './project-record.ts';
import { requireProjectQuota } from './require-project-quota.ts';

export interface NewProject {
  readonly id?: string | null | undefined;
  readonly name: string;
  readonly description?: string | null | undefined;
  readonly extra?: Readonly<Record<string, unknown>> | null | undefined;
  readonly startTime?: string | null | undefined;
  readonly endTime?: string | null | undefined;
  readonly defaultDatasetId?: string | null | undefined;
  readonly referenceDatasetId?: string | null | undefined;
  readonly traceTier?: string | null | undefined;
  readonly numExamples?: number | null | undefined;
  readonly numRepetitions?: number | null | undefined;
  readonly evaluatorKeys?: readonly string[] | null | undefined;
}

/**
 * Creates a project. With `upsert`, an existing project of that name is changed instead: given fields replace its own;
 * an empty `extra` counts as absent.
 *
 * @throws CONFLICT if the name is taken and `upsert` is not set, or if the id is taken; LIMIT_REACHED.
 */
export async function createProject(
  database: Database,
  workspaceId: string,
  project: NewProject,
  { upsert, maxProjects }: { readonly upsert: boolean; readonly maxProjects: number },
): Promise<ProjectRecord> {
  const [extra, metadata] = extraColumns(project.extra);
  const fields = [
    workspaceId,
    project.name,
    project.description ?? null,
    extra,
    metadata,
    project.startTime ?? null,
    project.endTime ?? null,
    project.defaultDatasetId ?? null,
    project.referenceDatasetId ?? null,
    project.traceTier ?? null,
    project.numExamples ?? null,
    project.numRepetitions ?? null,
    project.evaluatorKeys ?? null,
  ];
  return database.transaction(async (tx) => {
    const [made] = await tx.query<ProjectRow>(
      `INSERT INTO projects (id, workspace_id, name, description, extra, metadata, start_time, end_time, default_dataset_id,
         reference_dataset_id, trace_tier, num_examples, num_repetitions, evaluator_keys)
       VALUES ($14, $1, $2, $3, $4, coalesce($5::jsonb, '{}'), coalesce($6, now()), $7, $8, $9, $10, $11, $12, $13)
       ON CONFLICT DO NOTHING RETURNING ${projectColumns}`,
      [...fields, project.id ?? randomUUID()],
    );
    if (made) {
      await requireProjectQuota(tx, workspaceId, maxProjects);
      return toProjectRecord(made);
    }
    if (!upsert) throw runlakeError('CONFLICT', { reason: 'Session already exists.' });
    const [changed] = await tx.query<ProjectRow>(
      `UPDATE projects SET
         description = coalesce($3, description),
         extra = CASE WHEN $4::text IS NULL OR $4 = '{}' THEN extra ELSE $4 END,
         metadata = CASE WHEN $4::text IS NULL OR $4 = '{}' THEN metadata ELSE $5::jsonb END,
         start_time = coalesce($6, start_time),
         end_time = coalesce($7, end_time),
         default_dataset_id = coalesce($8, default_dataset_id),
         reference_dataset_id = coalesce($9, reference_dataset_id),
         trace_tier = coalesce($10, trace_tier),
         num_examples = coalesce($11, num_examples),
         num_repetitions = coalesce($12, num_repetitions),
         evaluator_keys = coalesce($13, evaluator_keys),
         updated_at = now()
       WHERE workspace_id = $1 AND name = $2 AND deleted_at IS NULL RETURNING ${projectColumns}`,
      fields,
    );
    if (!changed) throw runlakeError('CONFLICT', { reason: 'A session with this id already exists.' });
    return toProjectRecord(changed);
  });
}
