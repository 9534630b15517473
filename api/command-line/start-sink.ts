import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { waitingDeadLetters } from '../../infra/event-log/event-log-metrics.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { waitingLetters } from '../../pipelines/dead-letters/waiting-letters.ts';
import { Sink } from '../../pipelines/ingest/sink/sink.ts';
import { topics } from '../../schemas/topics.ts';
import type { Ends } from './ends.ts';
import { openDeadLetters } from './open-dead-letters.ts';
import type { Stores } from './open-stores.ts';

/**
 * Takes every topic of the log into ClickHouse, and shows how many dead letters wait. At the end the log finishes what it
 * handed over first, then the sink stops.
 * @throws what the log and the stores throw.
 */
export async function startSink(
  parts: {
    readonly config: Config;
    readonly logger: Logger;
    readonly stores: Stores;
    readonly log: EventLog;
    readonly onHoursNoted: () => void;
  },
  ends: Ends,
): Promise<Sink> {
  const { config, logger, log, onHoursNoted } = parts;
  const { database, warehouse } = parts.stores;
  const letters = await openDeadLetters(parts, ends);
  const hide = waitingDeadLetters.showing(() => waitingLetters({ letters, database }, topics));
  ends.add('count of dead letters', async () => hide());
  const sink = new Sink({ log, warehouse, database, config, logger, onHoursNoted });
  ends.add('sink', () => sink.stop());
  await sink.start(topics);
  // The log was opened before the sink, but a batch under way still needs it: closed here, and there once more.
  ends.add('batches under way', () => log.close());
  return sink;
}
