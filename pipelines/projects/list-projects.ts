import type { Database } from '../../infra/postgres/pool.ts';
import { asJsonb, type ProjectRecord, type ProjectRow, projectColumns, toProjectRecord } from './project-record.ts';

export interface ProjectQuery {
  readonly ids?: readonly string[] | undefined;
  readonly name?: string | undefined;
  /** Part of the name, ignoring case. */
  readonly nameContains?: string | undefined;
  /** Pairs that `extra.metadata` must contain. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** true: only projects that are not experiments; false: only experiments. */
  readonly referenceFree?: boolean | undefined;
  readonly referenceDatasetIds?: readonly string[] | undefined;
  readonly sortBy: 'name' | 'start_time';
  readonly descending: boolean;
  readonly limit: number;
  readonly offset: number;
}

/**
 * The projects of a workspace that are not deleted and meet every given condition. The id breaks ties, so that
 * consecutive pages neither repeat nor skip a project.
 */
export async function listProjects(
  database: Database,
  workspaceId: string,
  query: ProjectQuery,
): Promise<ProjectRecord[]> {
  const params: unknown[] = [workspaceId];
  const conditions = ['workspace_id = $1', 'deleted_at IS NULL'];
  const add = (value: unknown, condition: (parameter: string) => string) => {
    if (value === undefined) return;
    conditions.push(condition(`$${params.push(value)}`));
  };
  add(query.ids, (ids) => `id = ANY (${ids}::uuid[])`);
  add(query.name, (name) => `name = ${name}`);
  add(query.nameContains, (part) => `strpos(lower(name), lower(${part})) > 0`);
  add(query.metadata && asJsonb(query.metadata), (pairs) => `metadata @> ${pairs}::jsonb`);
  add(query.referenceDatasetIds, (ids) => `reference_dataset_id = ANY (${ids}::uuid[])`);
  if (query.referenceFree !== undefined) {
    conditions.push(`reference_dataset_id IS ${query.referenceFree ? '' : 'NOT '}NULL`);
  }
  const direction = query.descending ? 'DESC' : 'ASC';
  const rows = await database.query<ProjectRow>(
    `SELECT ${projectColumns} FROM projects WHERE ${conditions.join(' AND ')}
     ORDER BY ${query.sortBy} ${direction}, id ${direction}
     LIMIT $${params.push(query.limit)} OFFSET $${params.push(query.offset)}`,
    params,
  );
  return rows.map(toProjectRecord);
}
