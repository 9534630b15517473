import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { DeadLetterQueue, DeadLetterRange, DeadLetterRecord, EventLog } from '../../infra/event-log/event-log.ts';
import {
  findLastReplay,
  markReplayed,
  openPostgresDeadLetterQueue,
} from '../../infra/event-log/in-process/dead-letter-queue.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { poll } from '../../infra/timeouts/poll.ts';
import { type Topic, topics } from '../../schemas/topics.ts';

/**
 * Claims the replay of a dead-letter record for this process. If `isForced` is true, the claim succeeds even if the
 * record was claimed before.
 *
 * @returns undefined if the claim succeeded; otherwise a sentence that states when the earlier replay ended or began.
 */
export async function claimReplay(
  database: Database,
  deadLetterId: string,
  isForced: boolean,
): Promise<string | undefined> {
  const [claimed] = await database.query(
    `INSERT INTO dead_letter_replays (dead_letter_id) VALUES ($1)
     ON CONFLICT (dead_letter_id) DO UPDATE SET claimed_at = now(), replayed_at = NULL WHERE $2
     RETURNING dead_letter_id`,
    [deadLetterId, isForced],
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

/**
 * Returns the times at which records in `deadLetterIds` were replayed, as ISO text. Records that were not replayed are
 * omitted.
 */
export async function readReplayTimes(
  database: Database,
  deadLetterIds: readonly string[],
): Promise<Map<string, string>> {
  const rows = await database.query<{ dead_letter_id: string; replayed_at: string }>(
    'SELECT dead_letter_id, replayed_at FROM dead_letter_replays WHERE dead_letter_id = ANY ($1::text[]) AND replayed_at IS NOT NULL',
    [deadLetterIds],
  );
  return new Map(rows.map((row) => [row.dead_letter_id, row.replayed_at]));
}

/**
 * Returns the number of replayed dead-letter records with offsets of Kafka in the ranges. Replays outlive their records,
 * which the retention of Kafka deletes.
 */
export async function countReplays(
  database: Pick<Database, 'query'>,
  topic: Topic,
  ranges: readonly DeadLetterRange[],
): Promise<number> {
  const [row] = await database.query<{ replays: number }>(
    `SELECT count(*) AS replays FROM dead_letter_replays
     JOIN unnest($2::text[], $3::bigint[], $4::bigint[]) AS range (partition, low, high)
       ON split_part(dead_letter_id, '/', 2) = range.partition
     WHERE replayed_at IS NOT NULL AND split_part(dead_letter_id, '/', 1) = $1
       AND nullif(split_part(dead_letter_id, '/', 3), '')::bigint BETWEEN range.low AND range.high - 1`,
    [
      topic.name,
      ranges.map(({ partition }) => String(partition)),
      ranges.map(({ low }) => low),
      ranges.map(({ high }) => high),
    ],
  );
  return row?.replays ?? 0;
}

/**
 * Returns the number of dead-letter records of each topic that were not replayed.
 *
 * @throws errors of the log and Postgres.
 */
export function countUnreplayedDeadLetters(
  deadLetters: Pick<DeadLetterQueue, 'countUnreplayed'>,
  topics: readonly Topic[],
): Promise<{ labels: { topic: string }; value: number }[]> {
  return Promise.all(
    topics.map(async (topic) => ({
      labels: { topic: topic.name },
      value: await deadLetters.countUnreplayed(topic),
    })),
  );
}

const pollIntervalMs = 100;
const replayTimeoutMs = 30_000;

/**
 * Publishes the event of a dead-letter record by means of a job, because only the process that contains the in-process
 * log can publish to it. Resolves when that process has published the event.
 *
 * @throws REPLAY_UNCONFIRMED, JOBS_UNAVAILABLE
 */
export async function replayThroughJob(
  deadLetter: DeadLetterRecord,
  {
    jobs,
    database,
    limitMs = replayTimeoutMs,
  }: { readonly jobs: Jobs; readonly database: Database; readonly limitMs?: number },
): Promise<void> {
  const before = await findLastReplay(database, deadLetter.id);
  await jobs.enqueue('replay-dead-letter', { dead_letter_id: deadLetter.id }, { jobId: deadLetter.id });
  const isReplayed = async () => (await findLastReplay(database, deadLetter.id)) !== before;
  if (!(await poll(isReplayed, { intervalMs: pollIntervalMs, timeoutMs: limitMs }))) {
    throw runlakeError('REPLAY_UNCONFIRMED', { deadLetter: deadLetter.id, limitMs });
  }
}

/** Handles the replay job: publishes the event of a dead-letter record. Does nothing if the record no longer exists. */
export async function publishStoredDeadLetter(
  { log, database }: { readonly log: EventLog; readonly database: Database },
  deadLetterId: string,
): Promise<void> {
  const deadLetter = await openPostgresDeadLetterQueue(database).find(deadLetterId);
  const topic = topics.find(({ name }) => name === deadLetter?.topic);
  if (deadLetter === undefined || topic === undefined) return;
  const { key, value, headers } = deadLetter;
  await log.publish(topic, [{ key, value, headers }]);
  await markReplayed(database, deadLetterId);
}
