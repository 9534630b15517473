import { counter } from '../../telemetry/metrics.ts';

export const replays = counter(
  'runlake_event_log_replays_total',
  'Times that events of a partition are inserted again from an earlier position, by topic and reason.',
  ['topic', 'reason'],
);

export const lostEvents = counter(
  'runlake_event_log_lost_events_total',
  'Events that Kafka deleted before they were stored, by topic.',
  ['topic'],
);

export const assignments = counter(
  'runlake_event_log_assignments_total',
  'Partitions assigned to this process, by topic.',
  ['topic'],
);
