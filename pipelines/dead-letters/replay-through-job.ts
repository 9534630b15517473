import { setTimeout as pause } from 'node:timers/promises';
import { fault } from '../../infra/errors/runlake-error.ts';
import type { DeadLetter } from '../../infra/event-log/dead-letters.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { lastReplayOf, markReplayed } from '../../infra/event-log/in-process/mark-replayed.ts';
import { storedDeadLetters } from '../../infra/event-log/in-process/stored-dead-letters.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { topics } from '../../schemas/topics.ts';

const pollMs = 100;
const waitMs = 30_000;

/**
 * Has the process that runs the in-process log publish the event of a letter: nobody else can. Resolves when it has.
 * @throws REPLAY_UNCONFIRMED, JOBS_UNAVAILABLE
 */
export async function replayThroughJob(
  letter: DeadLetter,
  { jobs, database, limitMs = waitMs }: { readonly jobs: Jobs; readonly database: Database; readonly limitMs?: number },
): Promise<void> {
  const before = await lastReplayOf(database, letter.id);
  await jobs.enqueue('replay-dead-letter', { letter_id: letter.id }, { jobId: letter.id });
  const deadline = Date.now() + limitMs;
  while ((await lastReplayOf(database, letter.id)) === before) {
    if (Date.now() >= deadline) throw fault('REPLAY_UNCONFIRMED', { letter: letter.id, limitMs });
    await pause(pollMs);
  }
}

/** The other end: publishes the event of a stored letter. A letter that is gone is left alone. */
export async function publishStoredLetter(
  { log, database }: { readonly log: EventLog; readonly database: Database },
  letterId: string,
): Promise<void> {
  const letter = await storedDeadLetters(database).find(letterId);
  const topic = topics.find(({ name }) => name === letter?.topic);
  if (letter === undefined || topic === undefined) return;
  const { key, value, headers } = letter;
  await log.publish(topic, [{ key, value, headers }]);
  await markReplayed(database, letterId);
}
