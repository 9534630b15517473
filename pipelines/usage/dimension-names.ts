import type { Database } from '../../infra/postgres/pool.ts';
import type { Grouping } from './grouping.ts';

/** Current names by id, including deleted projects and revoked keys. Each query is restricted to one organisation. */
const sources: Readonly<Record<Grouping, string>> = {
  workspace: 'SELECT id, display_name AS name FROM workspaces WHERE organization_id = $1',
  project: `SELECT projects.id, name FROM projects JOIN workspaces ON workspaces.id = workspace_id WHERE organization_id = $1`,
  user: `SELECT id, name FROM (
      SELECT organization_id, id, email AS name FROM users
      UNION ALL SELECT organization_id, id, identity FROM end_users
    ) named WHERE organization_id = $1`,
  api_key: 'SELECT id, short_key AS name FROM api_keys WHERE organization_id = $1',
};

/**
 * Up to this number, all names of an organisation are read while the usage is still being counted. Above it, only the
 * names that the report needs.
 */
export const maxPrefetchedNames = 1_000;

export type Names = ReadonlyMap<string, string>;

/** All names that a grouping can have in the organisation, or undefined if there are more than {@link maxPrefetchedNames}. */
export async function allNames(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
): Promise<Names | undefined> {
  const rows = await database.query<NameRow>(`${sources[groupBy]} LIMIT $2`, [organizationId, maxPrefetchedNames + 1], {
    name: `all-usage-names-${groupBy}`,
  });
  return rows.length > maxPrefetchedNames ? undefined : toNames(rows);
}

/** The names of `ids`. Ids without a name are absent from the map. */
export async function namesOf(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
  ids: readonly string[],
): Promise<Names> {
  if (ids.length === 0) return new Map();
  const idColumn = groupBy === 'project' ? 'projects.id' : 'id';
  const sql = `${sources[groupBy]} AND ${idColumn} = ANY ($2)`;
  return toNames(await database.query<NameRow>(sql, [organizationId, ids], { name: `usage-names-${groupBy}` }));
}

interface NameRow {
  readonly id: string;
  readonly name: string;
}

function toNames(rows: readonly NameRow[]): Names {
  return new Map(rows.map(({ id, name }) => [id, name]));
}
