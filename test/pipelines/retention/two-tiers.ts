import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { otherProjectId, projectId, tenantId } from '../runs/run-events.ts';

/** Opens stores with one workspace: traces of `projectId` are shortlived, and those of `otherProjectId` longlived. */
export async function openTwoTiers(): Promise<FreshStores> {
  const stores = await freshStores();
  const { database } = stores;
  await database.execute(`INSERT INTO organizations (id, display_name) VALUES ($1, 'acme')`, [tenantId]);
  await database.execute(`INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $1, 'acme')`, [
    tenantId,
  ]);
  await database.execute(
    `INSERT INTO projects (id, workspace_id, name, trace_tier)
     VALUES ($1, $3, 'short', 'shortlived'), ($2, $3, 'long', 'longlived')`,
    [projectId, otherProjectId, tenantId],
  );
  return stores;
}

/** A log whose events are all stored, for `changeTraces`. */
export const storedLog = { position: async () => ({}), isStored: async () => true };

/** Returns the distinct lifetimes of the stored rows of `table` that meet `condition`, not only of merged rows. */
export async function readStoredLifetimes(clickhouse: ClickHouse, table: string, condition: string) {
  return clickhouse.query<{ tier: number; expires: number }>({
    name: 'test',
    sql: `SELECT DISTINCT trace_tier AS tier, toUnixTimestamp(expires_at) AS expires FROM ${table} WHERE ${condition} ORDER BY expires`,
  });
}
