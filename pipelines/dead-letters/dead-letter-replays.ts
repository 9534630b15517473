import type { Database } from '../../infra/postgres/pool.ts';

/**
 * Claims the replay of a dead-letter record for this process. `again` claims it even if it was claimed before.
 * @returns undefined if the claim succeeded; otherwise a sentence that says when the earlier replay ended or began.
 */
export async function claimReplay(
  database: Database,
  deadLetterId: string,
  again: boolean,
): Promise<string | undefined> {
  const [claimed] = await database.query(
    `INSERT INTO dead_letter_replays (dead_letter_id) VALUES ($1)
     ON CONFLICT (dead_letter_id) DO UPDATE SET claimed_at = now(), replayed_at = NULL WHERE $2
     RETURNING dead_letter_id`,
    [deadLetterId, again],
  );
  if (claimed !== undefined) return undefined;
  const [earlier] = await database.query<{ claimed_at: string; replayed_at: string | null }>(
    'SELECT claimed_at, replayed_at FROM dead_letter_replays WHERE dead_letter_id = $1',
    [deadLetterId],
  );
  if (earlier?.replayed_at) return `it was replayed at ${earlier.replayed_at}`;
  return `its replay began at ${earlier?.claimed_at ?? 'this moment'}, and its outcome is unknown`;
}

export async function finishReplay(database: Database, deadLetterId: string): Promise<void> {
  await database.execute('UPDATE dead_letter_replays SET replayed_at = now() WHERE dead_letter_id = $1', [
    deadLetterId,
  ]);
}

export async function releaseReplay(database: Database, deadLetterId: string): Promise<void> {
  await database.execute('DELETE FROM dead_letter_replays WHERE dead_letter_id = $1', [deadLetterId]);
}

/** Replay times, as ISO text, of those of `deadLetterIds` that were replayed. */
export async function replaysOf(database: Database, deadLetterIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await database.query<{ dead_letter_id: string; replayed_at: string }>(
    'SELECT dead_letter_id, replayed_at FROM dead_letter_replays WHERE dead_letter_id = ANY ($1::text[]) AND replayed_at IS NOT NULL',
    [deadLetterIds],
  );
  return new Map(rows.map((row) => [row.dead_letter_id, row.replayed_at]));
}

/** Number of replayed dead-letter records by topic. */
export async function countReplays(database: Pick<Database, 'query'>): Promise<Map<string, number>> {
  const rows = await database.query<{ topic: string; replays: number }>(
    `SELECT split_part(dead_letter_id, '/', 1) AS topic, count(*) AS replays
     FROM dead_letter_replays WHERE replayed_at IS NOT NULL GROUP BY 1`,
  );
  return new Map(rows.map(({ topic, replays }) => [topic, replays]));
}
