import { randomUUID } from 'node:crypto';
import type { ClickHouse, Command } from './clickhouse.ts';
import { runOnEachShard } from './layout.ts';

interface Deletion extends Pick<Command, 'name' | 'params' | 'timeoutMs' | 'signal'> {
  readonly table: string;
  /**
   * Condition that selects rows. It may use the result of {@link storeDeletionKeys} but must not read any other table:
   * ClickHouse evaluates the condition in the background, once for each part, and a mutation that reads other servers
   * waits for them.
   */
  readonly condition: string;
}

/**
 * Stores the ids that a query returns on every server, so that conditions of {@link deleteRows} can use them.
 * ClickHouse deletes the stored ids after two days.
 *
 * @param query returns UUIDs in a column `id`.
 * @returns SQL for the right side of `IN`.
 * @throws errors of ClickHouse.
 */
export async function storeDeletionKeys(
  clickhouse: ClickHouse,
  { sql, ...query }: Pick<Command, 'sql' | 'params' | 'timeoutMs' | 'signal'>,
): Promise<string> {
  const layout = await clickhouse.layout();
  const servers = layout.kind === 'cluster' ? clickhouse.servers : [clickhouse];
  const deletionId = randomUUID();
  const command: Command = {
    ...query,
    name: 'store-deletion-keys',
    sql: `INSERT INTO deletion_keys (deletion, id) SELECT '${deletionId}', id FROM (${sql})`,
    profile: 'bulk',
  };
  await Promise.all(servers.map((server) => server.command(command)));
  return `(SELECT id FROM deletion_keys WHERE deletion = '${deletionId}')`;
}

/**
 * Deletes the rows of a table that meet a condition, on all shards and replicas. Resolves when the rows are deleted.
 *
 * @throws errors of ClickHouse. In that case, some shards may already have deleted their rows.
 */
export async function deleteRows(clickhouse: ClickHouse, { table, condition, ...rest }: Deletion): Promise<void> {
  await runOnEachShard(clickhouse, (stored) => ({
    ...rest,
    sql: `ALTER TABLE ${stored(table)} DELETE WHERE ${condition}`,
    profile: 'mutation',
  }));
}
