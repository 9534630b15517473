import type { TouchedHour } from '../../../infra/event-log/event-log.ts';
import { tenantIdOf, traceTimeMicrosOf } from '../run-event/key-fields.ts';
import type { GoodRecord } from './split-into-cuts.ts';

const hourMicros = 3_600_000_000;

/** The hours of usage in which the traces of `records` lie, each once a tenant. */
export function touchedHours(records: readonly GoodRecord[]): TouchedHour[] {
  const hours = new Map<string, TouchedHour>();
  for (const { record } of records) {
    const tenantId = tenantIdOf(record.value);
    const hourSeconds = Math.floor(traceTimeMicrosOf(record.value) / hourMicros) * 3_600;
    hours.set(`${tenantId}${hourSeconds}`, { tenantId, hourSeconds });
  }
  return [...hours.values()];
}
