import type { Database } from '../../infra/postgres/pool.ts';

/**
 * Claims the replay of a letter for this process. `again` claims it whatever was before.
 * @returns a sentence where the letter was replayed before, or is being replayed; undefined where the claim is ours.
 */
export async function claimReplay(database: Database, letterId: string, again: boolean): Promise<string | undefined> {
  const [claimed] = await database.query(
    `INSERT INTO letter_replays (letter_id) VALUES ($1)
     ON CONFLICT (letter_id) DO UPDATE SET claimed_at = now(), replayed_at = NULL WHERE $2
     RETURNING letter_id`,
    [letterId, again],
  );
  if (claimed !== undefined) return undefined;
  const [earlier] = await database.query<{ claimed_at: string; replayed_at: string | null }>(
    'SELECT claimed_at, replayed_at FROM letter_replays WHERE letter_id = $1',
    [letterId],
  );
  if (earlier?.replayed_at) return `it was replayed at ${earlier.replayed_at}`;
  return `its replay was begun at ${earlier?.claimed_at ?? 'this moment'}, and it is not known how that ended`;
}

export async function finishReplay(database: Database, letterId: string): Promise<void> {
  await database.execute('UPDATE letter_replays SET replayed_at = now() WHERE letter_id = $1', [letterId]);
}

export async function giveUpReplay(database: Database, letterId: string): Promise<void> {
  await database.execute('DELETE FROM letter_replays WHERE letter_id = $1', [letterId]);
}

/** When those of `letterIds` that were replayed were so, as ISO text. */
export async function replaysOf(database: Database, letterIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await database.query<{ letter_id: string; replayed_at: string }>(
    'SELECT letter_id, replayed_at FROM letter_replays WHERE letter_id = ANY ($1::text[]) AND replayed_at IS NOT NULL',
    [letterIds],
  );
  return new Map(rows.map((row) => [row.letter_id, row.replayed_at]));
}

/** How many letters of each topic were replayed. */
export async function countReplays(database: Pick<Database, 'query'>): Promise<Map<string, number>> {
  const rows = await database.query<{ topic: string; replays: number }>(
    `SELECT split_part(letter_id, '/', 1) AS topic, count(*) AS replays
     FROM letter_replays WHERE replayed_at IS NOT NULL GROUP BY 1`,
  );
  return new Map(rows.map(({ topic, replays }) => [topic, replays]));
}
