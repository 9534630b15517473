import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import { receivedAtMicrosOf } from '../run-event/key-fields.ts';
import { visibleSeconds } from './sink-metrics.ts';
import type { GoodRecord } from './split-into-cuts.ts';

/** What this process has stored last, or found stored when it had stored nothing yet. */
let newestMicros = 0;
let askedAtMs = Number.NEGATIVE_INFINITY;
const askEveryMs = 5_000;

/** Notes that an insert of run events is stored. They are in the order of the log, so its ends tell enough. */
export function noteVisible(records: readonly GoodRecord[]): void {
  const nowMicros = Date.now() * 1_000;
  const first = records[0] && receivedAtMicrosOf(records[0].record.value);
  const last = records.length > 0 ? receivedAtMicrosOf((records.at(-1) as GoodRecord).record.value) : undefined;
  if (first !== undefined) visibleSeconds.observe(Math.max(0, nowMicros - first) / 1_000_000);
  // The clock of whoever accepted it may be ahead of ours.
  if (last !== undefined) newestMicros = Math.max(newestMicros, Math.min(last, nowMicros));
}

/**
 * Seconds since the newest run event that can be read was accepted: the newest that this process stored, or where it has
 * stored none yet, of runs that began within the last day. `undefined` where there is none.
 */
export async function ageOfNewestVisible(warehouse: Warehouse): Promise<number | undefined> {
  if (newestMicros === 0 && performance.now() - askedAtMs >= askEveryMs) {
    askedAtMs = performance.now();
    const stored = await newestStored(warehouse);
    newestMicros = Math.max(newestMicros, stored);
  }
  return newestMicros === 0 ? undefined : Math.max(0, Date.now() * 1_000 - newestMicros) / 1_000_000;
}

async function newestStored(warehouse: Warehouse): Promise<number> {
  const [newest] = await warehouse.query<{ micros: number }>({
    name: 'newest-visible-run',
    sql: 'SELECT toUnixTimestamp64Micro(max(first_received_at)) AS micros FROM runs WHERE start_time >= now() - INTERVAL 1 DAY',
    timeoutMs: 2_000,
  });
  return newest?.micros ?? 0;
}
