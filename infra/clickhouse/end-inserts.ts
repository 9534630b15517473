import type { ClickHouse } from './clickhouse.ts';

/**
 * Kills inserts with this deduplication token that still run on the server, for example those of a process that died,
 * so that they cannot write rows later. Resolves when they have ended.
 *
 * @throws the errors of {@link ClickHouse}.
 */
export async function endInserts(clickhouse: ClickHouse, token: string): Promise<void> {
  await clickhouse.command({
    name: 'end-inserts',
    sql: `KILL QUERY WHERE current_database = currentDatabase() AND user = currentUser()
      AND query_kind = 'Insert' AND Settings['insert_deduplication_token'] = {token:String} SYNC`,
    params: { token },
  });
}
