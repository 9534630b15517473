import type { Database } from '../../infra/postgres/pool.ts';
import type { Grouping } from './grouping.ts';

/**
 * Names by id, as they are today, also of deleted projects and revoked keys; never one of another organisation.
 * Each statement takes the organisation and the ids.
 */
const statements: Readonly<Record<Grouping, string>> = {
  workspace: 'SELECT id, display_name AS name FROM workspaces WHERE organization_id = $1 AND id = ANY ($2)',
  project: `SELECT projects.id, name FROM projects JOIN workspaces ON workspaces.id = workspace_id
    WHERE organization_id = $1 AND projects.id = ANY ($2)`,
  user: 'SELECT id, email AS name FROM users WHERE organization_id = $1 AND id = ANY ($2)',
  api_key: 'SELECT id, short_key AS name FROM api_keys WHERE organization_id = $1 AND id = ANY ($2)',
};

/** The names of what usage is grouped by. An id that has none is absent from the map. */
export async function namesOf(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length === 0) return new Map();
  const rows = await database.query<{ id: string; name: string }>(statements[groupBy], [organizationId, ids], {
    name: `usage-names-${groupBy}`,
  });
  return new Map(rows.map(({ id, name }) => [id, name]));
}
