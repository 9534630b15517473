import type { Sql } from '../../postgres/pool.ts';

/** Notes that the log has taken the event of a letter again. */
export async function markReplayed(database: Sql, letterId: string): Promise<void> {
  await database.execute('UPDATE dead_letters SET replayed_at = clock_timestamp() WHERE id = $1', [rowOf(letterId)]);
}

/** ISO 8601; undefined where the letter was never replayed. */
export async function lastReplayOf(database: Sql, letterId: string): Promise<string | undefined> {
  const [row] = await database.query<{ replayed_at: string | null }>(
    'SELECT replayed_at FROM dead_letters WHERE id = $1',
    [rowOf(letterId)],
  );
  return row?.replayed_at ?? undefined;
}

function rowOf(letterId: string): string {
  return letterId.slice(letterId.lastIndexOf('/') + 1);
}
