import { counter, histogram } from '../../../infra/telemetry/metrics.ts';
import { scrapedGauge } from '../../../infra/telemetry/scraped-gauge.ts';

export const cutRows = histogram(
  'runlake_sink_cut_rows',
  'Rows of one insert, by table.',
  ['table'],
  [1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000],
);

export const cutBytes = histogram(
  'runlake_sink_cut_bytes',
  'Bytes of one insert as they go to ClickHouse, by table.',
  ['table'],
  [1_024, 16_384, 131_072, 1_048_576, 4_194_304, 16_777_216, 67_108_864, 268_435_456],
);

export const insertSeconds = histogram(
  'runlake_sink_insert_seconds',
  'Time of one insert into ClickHouse that was stored, by table.',
  ['table'],
  [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
);

export const failedInserts = counter(
  'runlake_sink_failed_inserts_total',
  'Inserts that ClickHouse did not store, by table and error code. INSERT_DATA_REFUSED: halved until the bad record is alone.',
  ['table', 'code'],
);

export const visibleSeconds = histogram(
  'runlake_run_visible_seconds',
  'Time from the acceptance of the first run event of an insert until the insert is stored, and thus visible.',
  [],
  [0.01, 0.03, 0.1, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800],
);

export const newestVisibleAge = scrapedGauge(
  'runlake_newest_visible_run_age_seconds',
  'Time since the newest run event that can be read was accepted; absent where the last day has none.',
  [],
);

export const repeatedEvents = counter(
  'runlake_sink_repeated_events_total',
  'Run events that were dropped because the same event was stored before: requests that a client sent again.',
  [],
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

export const parkedNow = scrapedGauge(
  'runlake_parked_events',
  'Run events that wait for their trace. Counted no further than 100,000.',
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
