import { fault } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { topics } from '../../schemas/topics.ts';
import { findStaleEvents, unparkEvents } from './sink/parked-events.ts';

const eventsPerRound = 500;

/**
 * Puts events that waited longer than `hours` for their trace to the dead letters. Died between letter and delete: the next
 * run finds the letter there already.
 *
 * @returns how many there were.
 */
export async function expireParkedEvents(
  { log, database, logger }: { readonly log: EventLog; readonly database: Database; readonly logger: Logger },
  { hours, signal }: { readonly hours: number; readonly signal?: AbortSignal },
): Promise<number> {
  let expired = 0;
  for (;;) {
    signal?.throwIfAborted();
    const events = await findStaleEvents(database, new Date(Date.now() - hours * 3_600_000), eventsPerRound);
    if (events.length === 0) return expired;
    for (const { topic: name, record } of events) {
      const topic = topics.find((known) => known.name === name);
      if (topic === undefined) throw fault('INTERNAL', {}, { cause: `a parked event of the unknown topic ${name}` });
      await log.deadLetter(topic, record, `its trace did not appear within ${hours} hours`, 'park');
    }
    await unparkEvents(database, events);
    expired += events.length;
    logger.warn({ events: events.length }, 'events whose trace never appeared were put to the dead letters');
  }
}
