import type { Database } from '../../infra/postgres/pool.ts';
import type { Grouping } from './grouping.ts';

/** Names by id, as they are today, also of deleted projects and revoked keys; never one of another organisation. */
const sources: Readonly<Record<Grouping, string>> = {
  workspace: 'SELECT id, display_name AS name FROM workspaces WHERE organization_id = $1',
  project: `SELECT projects.id, name FROM projects JOIN workspaces ON workspaces.id = workspace_id WHERE organization_id = $1`,
  user: `SELECT id, name FROM (
      SELECT organization_id, id, email AS name FROM users
      UNION ALL SELECT organization_id, id, identity FROM end_users
    ) named WHERE organization_id = $1`,
  api_key: 'SELECT id, short_key AS name FROM api_keys WHERE organization_id = $1',
};

/** Up to so many names are read without asking which are needed, while they are still being counted. */
export const fewNames = 1_000;

export type Names = ReadonlyMap<string, string>;

/** All names that a grouping can have in the organisation, or undefined where they are more than {@link fewNames}. */
export async function allNames(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
): Promise<Names | undefined> {
  const rows = await database.query<NameRow>(`${sources[groupBy]} LIMIT $2`, [organizationId, fewNames + 1], {
    name: `all-usage-names-${groupBy}`,
  });
  return rows.length > fewNames ? undefined : mapOf(rows);
}

/** The names of `ids`. An id that has none is absent from the map. */
export async function namesOf(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
  ids: readonly string[],
): Promise<Names> {
  if (ids.length === 0) return new Map();
  const idColumn = groupBy === 'project' ? 'projects.id' : 'id';
  const sql = `${sources[groupBy]} AND ${idColumn} = ANY ($2)`;
  return mapOf(await database.query<NameRow>(sql, [organizationId, ids], { name: `usage-names-${groupBy}` }));
}

interface NameRow {
  readonly id: string;
  readonly name: string;
}

function mapOf(rows: readonly NameRow[]): Names {
  return new Map(rows.map(({ id, name }) => [id, name]));
}
