import type { Warehouse } from './warehouse.ts';

const settingOf = { name: 'log_comment', token: 'insert_deduplication_token' } as const;

/**
 * Ends the inserts of that name or token which still run on the server, such as those of a process that died: what is left
 * of them would be written later. Resolves when they are gone.
 *
 * @throws what ClickHouse throws.
 */
export async function endInserts(warehouse: Warehouse, by: keyof typeof settingOf, value: string): Promise<void> {
  await warehouse.command({
    name: 'end-inserts',
    sql: `KILL QUERY WHERE current_database = currentDatabase() AND user = currentUser()
      AND query_kind = 'Insert' AND Settings['${settingOf[by]}'] = {value:String} SYNC`,
    params: { value },
  });
}
