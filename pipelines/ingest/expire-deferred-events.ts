import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type EventLog, waitUntilStored } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { runEvents, type Topic, topics } from '../../schemas/topics.ts';
import { deleteExpiredEvents } from './sink/deferred-events.ts';
import { deleteContestedTraces } from './sink/settle-traces.ts';
import { deadLetters } from './sink/sink-metrics.ts';

const maxEventsPerRound = 500;
const sinkTimeoutMs = 60_000;
/** Time for which a row of `contested_traces` is kept after a sink last renewed it. */
const contestedRetentionMs = 7 * 86_400_000;

/**
 * Moves events that have been deferred for longer than `hours` to the dead-letter queue, if the sinks have stored all
 * accepted events. One transaction deletes the events and adds the dead-letter records, so that an event whose trace
 * appears at the same moment is either stored or a dead-letter record, not both.
 *
 * @returns the number of moved events.
 */
export async function expireDeferredEvents(
  { log, database, logger }: { readonly log: EventLog; readonly database: Database; readonly logger: Logger },
  { hours, signal }: { readonly hours: number; readonly signal?: AbortSignal },
): Promise<number> {
  let expiredCount = 0;
  // The trace of an event may wait in the log.
  if (!(await waitUntilStored(log, runEvents, { timeoutMs: sinkTimeoutMs, signal }))) return expiredCount;
  await deleteContestedTraces(database, new Date(Date.now() - contestedRetentionMs));
  for (;;) {
    signal?.throwIfAborted();
    const before = new Date(Date.now() - hours * 3_600_000);
    const events = await database.transaction(async (transaction) => {
      const expiredEvents = await deleteExpiredEvents(transaction, before, maxEventsPerRound);
      for (const { topic: name, record } of expiredEvents) {
        const reason = `its trace did not appear within ${hours} hours`;
        await log.deadLetter(findTopic(name), record, reason, 'defer', transaction);
      }
      return expiredEvents;
    });
    if (events.length === 0) return expiredCount;
    for (const { topic } of events) deadLetters.inc({ topic, step: 'defer' });
    expiredCount += events.length;
    logger.warn({ events: events.length }, 'deferred events expired: moved to the dead-letter queue');
  }
}

function findTopic(name: string): Topic {
  const topic = topics.find((known) => known.name === name);
  if (topic === undefined)
    throw runlakeError('INTERNAL', {}, { cause: `a deferred event of the unknown topic ${name}` });
  return topic;
}
