import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { receivedAtMicrosOf } from '../run-event/key-fields.ts';
import { visibleSeconds } from './sink-metrics.ts';
import type { ValidRecord } from './split-into-batches.ts';

/** Acceptance time of the newest event that this process stored, or found in ClickHouse before it stored any. */
let newestMicros = 0;
let queriedAtMs = Number.NEGATIVE_INFINITY;
const queryEveryMs = 5_000;

/** Updates the metrics after an insert of run events. The records are in log order, so the first and the last are enough. */
export function recordVisible(records: readonly ValidRecord[]): void {
  const nowMicros = Date.now() * 1_000;
  const first = records[0] && receivedAtMicrosOf(records[0].record.value);
  const last = records.length > 0 ? receivedAtMicrosOf((records.at(-1) as ValidRecord).record.value) : undefined;
  if (first !== undefined) visibleSeconds.observe(Math.max(0, nowMicros - first) / 1_000_000);
  // The clock of the API process that accepted the event may be ahead of this one.
  if (last !== undefined) newestMicros = Math.max(newestMicros, Math.min(last, nowMicros));
}

/**
 * Seconds since the newest visible run event was accepted: of those that this process stored or, if it has stored none
 * yet, of runs that started within the last day. `undefined` if there are none.
 */
export async function ageOfNewestVisible(clickhouse: ClickHouse): Promise<number | undefined> {
  if (newestMicros === 0 && performance.now() - queriedAtMs >= queryEveryMs) {
    queriedAtMs = performance.now();
    const stored = await newestStored(clickhouse);
    newestMicros = Math.max(newestMicros, stored);
  }
  return newestMicros === 0 ? undefined : Math.max(0, Date.now() * 1_000 - newestMicros) / 1_000_000;
}

async function newestStored(clickhouse: ClickHouse): Promise<number> {
  const [newest] = await clickhouse.query<{ micros: number }>({
    name: 'newest-visible-run',
    sql: 'SELECT toUnixTimestamp64Micro(max(first_received_at)) AS micros FROM runs WHERE start_time >= now() - INTERVAL 1 DAY',
    timeoutMs: 2_000,
  });
  return newest?.micros ?? 0;
}
