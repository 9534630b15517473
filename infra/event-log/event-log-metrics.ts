import { counter, histogram, scrapedGauge } from '../telemetry/metrics.ts';

/** The metrics of the event log, the same for every adapter. `observe-publish.ts` counts what is published. */

export const producedEvents = counter(
  'runlake_event_log_produced_events_total',
  'Events that the event log made durable, by topic.',
  ['topic'],
);

export const producedBytes = counter(
  'runlake_event_log_produced_bytes_total',
  'Bytes of the events that the event log made durable, by topic.',
  ['topic'],
);

export const publishSeconds = histogram(
  'runlake_event_log_publish_seconds',
  'Time from publishing the events of a request until they are durable, by topic and outcome: taken, or the error code.',
  ['topic', 'outcome'],
  [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30],
);

/** Bytes that were published by this process and are not durable yet. */
export const pendingBytes = scrapedGauge(
  'runlake_event_log_pending_bytes',
  'Bytes of events in the memory of this process that are not durable yet.',
  [],
);

/** Consumer lag of the partitions that this process consumes. */
export const consumerLag = scrapedGauge(
  'runlake_event_log_lag_events',
  'Events of the log that are not stored yet, by topic and partition.',
  ['topic', 'partition'],
);

export const waitingDeadLetters = scrapedGauge(
  'runlake_dead_letters_waiting',
  'Dead-letter records that were not replayed, by original topic. Counts at most 100,000.',
  ['topic'],
);
