import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { counter, histogram, scrapedGauge } from '../../../infra/telemetry/metrics.ts';
import { readReceivedAtMicros } from '../run-event/run-event.ts';
import type { ValidRecord } from './split-into-batches.ts';

export const batchRows = histogram(
  'runlake_sink_insert_batch_rows',
  'Rows of one insert batch, by table.',
  ['table'],
  [1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000],
);

export const batchBytes = histogram(
  'runlake_sink_insert_batch_bytes',
  'Bytes of one insert batch as sent to ClickHouse, by table.',
  ['table'],
  [1_024, 16_384, 131_072, 1_048_576, 4_194_304, 16_777_216, 67_108_864, 268_435_456],
);

export const insertSeconds = histogram(
  'runlake_sink_insert_seconds',
  'Duration of one successful insert into ClickHouse, by table.',
  ['table'],
  [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
);

export const failedInserts = counter(
  'runlake_sink_failed_inserts_total',
  'Inserts that failed, by table and error code. INSERT_DATA_REFUSED: the sink bisects the batch to isolate the invalid records.',
  ['table', 'code'],
);

const visibleSeconds = histogram(
  'runlake_run_visible_seconds',
  'Time from the acceptance of the first run event of an insert batch until the batch is stored and visible to queries.',
  [],
  [0.01, 0.03, 0.1, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800],
);

export const newestVisibleAge = scrapedGauge(
  'runlake_newest_visible_run_age_seconds',
  'Time since the newest visible run event was accepted; absent if the last day has none.',
  [],
);

export const repeatedEvents = counter(
  'runlake_sink_repeated_events_total',
  'Events that repeat stored events and changed nothing, because a client sent its request again, by topic.',
  ['topic'],
);

export const movedEvents = counter(
  'runlake_sink_moved_events_total',
  'Run events whose project or trace time was overwritten with that of their trace.',
  [],
);

export const deferredEvents = counter(
  'runlake_sink_deferred_events_total',
  'Run events deferred because their trace is not known yet.',
  [],
);

export const deferredEventCount = scrapedGauge(
  'runlake_deferred_events',
  'Deferred run events that wait for their trace. Counts at most 100,000.',
  [],
);

export const transientEvents = counter(
  'runlake_sink_unstored_events_total',
  'Events that were published for followers only and are marked not to be stored, by topic.',
  ['topic'],
);

export const deadLetters = counter(
  'runlake_dead_letters_total',
  'Events that can never be stored, by topic and step.',
  ['topic', 'step'],
);

/**
 * Acceptance time of the newest event that this process has stored or, before it has stored any, has found in
 * ClickHouse.
 */
let newestMicros = 0;
let queriedAtMs = Number.NEGATIVE_INFINITY;
const queryIntervalMs = 5_000;

/**
 * Updates the metrics after an insert of run events. The records are in log order, so only the first and the last
 * record are read.
 */
export function recordVisibleEvents(records: readonly ValidRecord[]): void {
  const nowMicros = Date.now() * 1_000;
  const first = records[0] && readReceivedAtMicros(records[0].record.value);
  const last = records.length > 0 ? readReceivedAtMicros((records.at(-1) as ValidRecord).record.value) : undefined;
  if (first !== undefined) visibleSeconds.observe(Math.max(0, nowMicros - first) / 1_000_000);
  // The clock of the API process that accepted the event may be ahead of the clock of this process.
  if (last !== undefined) newestMicros = Math.max(newestMicros, Math.min(last, nowMicros));
}

/**
 * Returns the time in seconds since the newest visible run event was accepted. Considers the events that this process
 * stored or, if it has stored none yet, the runs that started within the last day. Returns `undefined` if there are
 * none.
 */
export async function readNewestVisibleRunAge(clickhouse: ClickHouse): Promise<number | undefined> {
  if (newestMicros === 0 && performance.now() - queriedAtMs >= queryIntervalMs) {
    queriedAtMs = performance.now();
    const stored = await readNewestStoredMicros(clickhouse);
    newestMicros = Math.max(newestMicros, stored);
  }
  return newestMicros === 0 ? undefined : Math.max(0, Date.now() * 1_000 - newestMicros) / 1_000_000;
}

async function readNewestStoredMicros(clickhouse: ClickHouse): Promise<number> {
  const [newest] = await clickhouse.query<{ micros: number }>({
    name: 'newest-visible-run',
    sql: 'SELECT toUnixTimestamp64Micro(max(first_received_at)) AS micros FROM runs WHERE start_time >= now() - INTERVAL 1 DAY',
    timeoutMs: 2_000,
  });
  return newest?.micros ?? 0;
}
