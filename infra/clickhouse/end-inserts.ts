import type { Warehouse } from './warehouse.ts';

/**
 * Ends the inserts under that deduplication token which still run on the server, such as those of a process that died: what
 * is left of them would be written later. Resolves when they are gone.
 *
 * @throws what ClickHouse throws.
 */
export async function endInserts(warehouse: Warehouse, token: string): Promise<void> {
  await warehouse.command({
    name: 'end-inserts',
    sql: `KILL QUERY WHERE current_database = currentDatabase() AND user = currentUser()
      AND query_kind = 'Insert' AND Settings['insert_deduplication_token'] = {token:String} SYNC`,
    params: { token },
  });
}
