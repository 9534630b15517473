import { counter, histogram } from '../../../infra/telemetry/metrics.ts';

export const cutRows = histogram(
  'runlake_sink_cut_rows',
  'Rows of one insert, by table.',
  ['table'],
  [1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000],
);

export const insertSeconds = histogram(
  'runlake_sink_insert_seconds',
  'Time of one insert into ClickHouse, by table.',
  ['table'],
  [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
);

export const movedEvents = counter(
  'runlake_sink_moved_events_total',
  'Run events whose project or trace time was written over with that of their trace.',
  [],
);

export const parkedEvents = counter(
  'runlake_sink_parked_events_total',
  'Run events that were parked until their trace appears.',
  [],
);

export const unkeptEvents = counter(
  'runlake_sink_unkept_events_total',
  'Events that went through the log for those who read it as it comes, marked not to be stored, by topic.',
  ['topic'],
);

export const deadLetters = counter(
  'runlake_dead_letters_total',
  'Events that can never be stored, by topic and step.',
  ['topic', 'step'],
);
