import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { buildAssignments } from '../../infra/postgres/assignments.ts';
import { getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { addTaggings, hasTaggings } from '../tags/taggings.ts';
import { type ProjectRecord, type ProjectRow, projectColumns, toExtraColumns, toProjectRecord } from './project.ts';
import { type ProjectResolver, requireProjectQuota } from './resolve-project.ts';

interface NewProject {
  readonly id?: string | null | undefined;
  readonly name: string;
  readonly description?: string | null | undefined;
  readonly extra?: Readonly<Record<string, unknown>> | null | undefined;
  readonly startTime?: string | null | undefined;
  readonly endTime?: string | null | undefined;
  readonly defaultDatasetId?: string | null | undefined;
  readonly referenceDatasetId?: string | null | undefined;
  readonly traceTier?: string | null | undefined;
  readonly longlivedTtlDays?: number | null | undefined;
  readonly numExamples?: number | null | undefined;
  readonly numRepetitions?: number | null | undefined;
  readonly evaluatorKeys?: readonly string[] | null | undefined;
  /** Tag values that the project gets in addition to those that it has. */
  readonly tagValueIds?: readonly string[] | null | undefined;
}

/**
 * Creates a project. With `upsert`, an existing project with this name is changed instead: the given fields replace its
 * fields, except that an empty `extra` is ignored.
 * Without `upsert`, a repeated request returns the project if it still has all given fields.
 *
 * @throws CONFLICT if the name is taken and `upsert` is not set, or if the id is taken; LIMIT_REACHED; NOT_FOUND for an
 *   unknown tag value.
 */
export async function createProject(
  database: Database,
  workspaceId: string,
  project: NewProject,
  { upsert, maxProjects }: { readonly upsert: boolean; readonly maxProjects: number },
): Promise<ProjectRecord> {
  const [extra, metadata] = toExtraColumns(project.extra);
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
    project.longlivedTtlDays ?? null,
  ];
  return database.transaction(async (tx) => {
    const [made] = await tx.query<ProjectRow>(
      `INSERT INTO projects (id, workspace_id, name, description, extra, metadata, start_time, end_time, default_dataset_id,
         reference_dataset_id, trace_tier, num_examples, num_repetitions, evaluator_keys, longlived_ttl_days)
       VALUES ($15, $1, $2, $3, $4, coalesce($5::jsonb, '{}'), coalesce($6, now()), $7, $8, $9, $10, $11, $12, $13, $14)
       ON CONFLICT DO NOTHING RETURNING ${projectColumns}`,
      [...fields, project.id ?? randomUUID()],
    );
    const addTags = ({ id, reference_dataset_id: dataset }: ProjectRow) =>
      addTaggings(
        tx,
        workspaceId,
        { type: dataset === null ? 'project' : 'experiment', id },
        project.tagValueIds ?? [],
      );
    if (made) {
      await addTags(made);
      await requireProjectQuota(tx, workspaceId, maxProjects);
      return toProjectRecord(made);
    }
    const [repeated] = await tx.query<ProjectRow>(
      `SELECT ${projectColumns} FROM projects WHERE workspace_id = $1 AND name = $2 AND id = $15 AND deleted_at IS NULL
         AND metadata = coalesce($5::jsonb, '{}') AND start_time = coalesce($6, start_time)
         AND (description, extra, end_time, default_dataset_id, reference_dataset_id, trace_tier, num_examples,
           num_repetitions, evaluator_keys, longlived_ttl_days) IS NOT DISTINCT FROM ($3, $4, $7, $8, $9, $10, $11, $12, $13, $14)`,
      [...fields, project.id ?? null],
    );
    if (repeated && !upsert && (await hasTaggings(tx, repeated.id, project.tagValueIds ?? [])))
      return toProjectRecord(repeated);
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
         longlived_ttl_days = coalesce($14, longlived_ttl_days),
         updated_at = now()
       WHERE workspace_id = $1 AND name = $2 AND deleted_at IS NULL RETURNING ${projectColumns}`,
      fields,
    );
    if (!changed) throw runlakeError('CONFLICT', { reason: 'A session with this id already exists.' });
    await addTags(changed);
    return toProjectRecord(changed);
  });
}

/** Absent fields stay unchanged; null clears a field. */
export interface ProjectChange
  extends Pick<NewProject, 'description' | 'extra' | 'endTime' | 'defaultDatasetId' | 'longlivedTtlDays'> {
  readonly name?: string | undefined;
  /** Whether the keys of `extra` are added to those that exist; a key with null is removed. */
  readonly mergesExtra?: boolean;
  readonly traceTier?: string | undefined;
}

/**
 * Changes a project. Its former name is stored, so that patches that still contain the former name find the project.
 *
 * @throws NOT_FOUND if the workspace has no project with this id, or if the project is deleted; CONFLICT if the new
 *   name is taken.
 */
export async function updateProject(
  { database, projects }: { database: Database; projects: ProjectResolver },
  workspaceId: string,
  projectId: string,
  change: ProjectChange,
): Promise<ProjectRecord> {
  const changed = await database
    .transaction(async (tx) => {
      const [before] = await tx.query<ProjectRow>(
        `SELECT ${projectColumns} FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL FOR UPDATE`,
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
      const { assignments, values } = buildAssignments(listChangedColumns(toProjectRecord(before), change), 2);
      const [row] = await tx.query<ProjectRow>(
        `UPDATE projects SET updated_at = now()${assignments} WHERE id = $1 RETURNING ${projectColumns}`,
        [projectId, ...values],
      );
      return toProjectRecord(row!);
    })
    .catch((error: unknown) => {
      const isNameTaken = getViolatedConstraint(error) === 'projects_by_name';
      throw isNameTaken
        ? runlakeError('CONFLICT', { reason: 'A session with this name already exists.' }, { cause: error })
        : error;
    });
  if (change.name) projects.forget();
  return changed;
}

/** Returns the values of the columns to set; undefined for a column that stays unchanged. */
function listChangedColumns({ extra: current }: ProjectRecord, change: ProjectChange) {
  const merged =
    change.mergesExtra && change.extra
      ? Object.fromEntries(Object.entries({ ...current, ...change.extra }).filter(([, value]) => value !== null))
      : change.extra;
  const [extra, metadata] = toExtraColumns(merged);
  return {
    name: change.name,
    description: change.description,
    ...(merged !== undefined && { extra, metadata: metadata ?? '{}' }),
    end_time: change.endTime,
    default_dataset_id: change.defaultDatasetId,
    trace_tier: change.traceTier,
    longlived_ttl_days: change.longlivedTtlDays,
  };
}
