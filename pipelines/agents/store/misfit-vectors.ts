import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Returns the length of any stored vector that does not have `dims` dimensions; undefined if all have. Searches ignore
 * such vectors.
 */
export async function misfitVectors(sql: Sql, deploymentId: string, dims: number): Promise<number | undefined> {
  const [found] = await sql.query<{ numbers: number }>(
    `SELECT cardinality(embedding) AS numbers FROM agents.store_vectors
     WHERE deployment_id = $1 AND cardinality(embedding) <> $2 LIMIT 1`,
    [deploymentId, dims],
  );
  return found?.numbers;
}
