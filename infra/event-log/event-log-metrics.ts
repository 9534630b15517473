import { counter, histogram } from '../telemetry/metrics.ts';
import { scrapedGauge } from '../telemetry/scraped-gauge.ts';

/** The metrics of the event log, the same for every adapter. What is published is counted by `observe-publish.ts`. */

export const producedEvents = counter(
  'runlake_event_log_produced_events_total',
  'Events that the event log took and made durable, by topic.',
  ['topic'],
);

export const producedBytes = counter(
  'runlake_event_log_produced_bytes_total',
  'Bytes of the events that the event log took, by topic.',
  ['topic'],
);

export const publishSeconds = histogram(
  'runlake_event_log_publish_seconds',
  'Time from handing the events of a request to the event log until they are durable, by topic and outcome: taken, or the code of the error.',
  ['topic', 'outcome'],
  [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
);

/** In memory of this process: handed over, not durable yet. */
export const pendingBytes = scrapedGauge(
  'runlake_event_log_pending_bytes',
  'Bytes of events that wait in this process to be made durable.',
  [],
);

/** Of the partitions that this process consumes. */
export const consumerLag = scrapedGauge(
  'runlake_event_log_lag_events',
  'Events of the log that are not stored yet, by topic and partition.',
  ['topic', 'partition'],
);

export const waitingDeadLetters = scrapedGauge(
  'runlake_dead_letters_waiting',
  'Dead letters that nobody has replayed, by topic they came from. Counted no further than 100,000.',
  ['topic'],
);
