import type { Sql } from '../../postgres/pool.ts';

/** Records that the event of a dead-letter record was published again. */
export async function markReplayed(database: Sql, deadLetterId: string): Promise<void> {
  await database.execute('UPDATE dead_letters SET replayed_at = clock_timestamp() WHERE id = $1', [
    rowId(deadLetterId),
  ]);
}

/** Time of the last replay in ISO 8601; undefined if the record was never replayed. */
export async function lastReplayOf(database: Sql, deadLetterId: string): Promise<string | undefined> {
  const [row] = await database.query<{ replayed_at: string | null }>(
    'SELECT replayed_at FROM dead_letters WHERE id = $1',
    [rowId(deadLetterId)],
  );
  return row?.replayed_at ?? undefined;
}

function rowId(deadLetterId: string): string {
  return deadLetterId.slice(deadLetterId.lastIndexOf('/') + 1);
}
