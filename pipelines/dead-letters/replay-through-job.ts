import { setTimeout as pause } from 'node:timers/promises';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
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
 * Publishes the event of a dead-letter record through a job, because only the process with the in-process log can
 * publish to it. Resolves when that process has done so.
 * @throws REPLAY_UNCONFIRMED, JOBS_UNAVAILABLE
 */
export async function replayThroughJob(
  deadLetter: DeadLetter,
  { jobs, database, limitMs = waitMs }: { readonly jobs: Jobs; readonly database: Database; readonly limitMs?: number },
): Promise<void> {
  const before = await lastReplayOf(database, deadLetter.id);
  await jobs.enqueue('replay-dead-letter', { dead_letter_id: deadLetter.id }, { jobId: deadLetter.id });
  const deadline = Date.now() + limitMs;
  while ((await lastReplayOf(database, deadLetter.id)) === before) {
    if (Date.now() >= deadline) throw runlakeError('REPLAY_UNCONFIRMED', { deadLetter: deadLetter.id, limitMs });
    await pause(pollMs);
  }
}

/** Handles the job: publishes the event of a dead-letter record. Does nothing if the record is gone. */
export async function publishStoredDeadLetter(
  { log, database }: { readonly log: EventLog; readonly database: Database },
  deadLetterId: string,
): Promise<void> {
  const deadLetter = await storedDeadLetters(database).find(deadLetterId);
  const topic = topics.find(({ name }) => name === deadLetter?.topic);
  if (deadLetter === undefined || topic === undefined) return;
  const { key, value, headers } = deadLetter;
  await log.publish(topic, [{ key, value, headers }]);
  await markReplayed(database, deadLetterId);
}
