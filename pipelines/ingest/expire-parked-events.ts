import { fault } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { type Topic, topics } from '../../schemas/topics.ts';
import { forgetParkedOffsets, takeStaleEvents } from './sink/parked-events.ts';
import { deadLetters } from './sink/sink-metrics.ts';

const eventsPerRound = 500;
/** No process sleeps that long and goes on. */
const rememberOffsetsMs = 7 * 86_400_000;

/**
 * Puts events that waited longer than `hours` for their trace to the dead letters, both in one transaction: an event that
 * joins its trace at this moment goes one way only.
 *
 * @returns how many there were.
 */
export async function expireParkedEvents(
  { log, database, logger }: { readonly log: EventLog; readonly database: Database; readonly logger: Logger },
  { hours, signal }: { readonly hours: number; readonly signal?: AbortSignal },
): Promise<number> {
  let expired = 0;
  await forgetParkedOffsets(database, new Date(Date.now() - rememberOffsetsMs));
  for (;;) {
    signal?.throwIfAborted();
    const before = new Date(Date.now() - hours * 3_600_000);
    const events = await database.transaction(async (transaction) => {
      const stale = await takeStaleEvents(transaction, before, eventsPerRound);
      for (const { topic: name, record } of stale) {
        const reason = `its trace did not appear within ${hours} hours`;
        await log.deadLetter(topicNamed(name), record, reason, 'park', transaction);
      }
      return stale;
    });
    if (events.length === 0) return expired;
    for (const { topic } of events) deadLetters.inc({ topic, step: 'park' });
    expired += events.length;
    logger.warn({ events: events.length }, 'events whose trace never appeared were put to the dead letters');
  }
}

function topicNamed(name: string): Topic {
  const topic = topics.find((known) => known.name === name);
  if (topic === undefined) throw fault('INTERNAL', {}, { cause: `a parked event of the unknown topic ${name}` });
  return topic;
}
