import type { DirtyHour } from '../../../infra/event-log/event-log.ts';
import { fieldOffset, timeMicrosAt, uuidAt } from '../../../infra/event-log/fixed-fields.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { ValidRecord } from './split-into-batches.ts';

const hourMicros = 3_600_000_000;

/** Tenant and hour of each record, without duplicates; empty if the topic's events are not billed. */
export function dirtyHours(topic: Topic, records: readonly ValidRecord[]): DirtyHour[] {
  if (topic.usageHour === undefined) return [];
  const tenantAt = fieldOffset(topic, topic.usageHour.tenant);
  const timeAt = fieldOffset(topic, topic.usageHour.time);
  const hours = new Map<string, DirtyHour>();
  for (const { record } of records) {
    const tenantId = uuidAt(record.value, tenantAt);
    const hourSeconds = Math.floor(timeMicrosAt(record.value, timeAt) / hourMicros) * 3_600;
    hours.set(`${tenantId}${hourSeconds}`, { tenantId, hourSeconds });
  }
  return [...hours.values()];
}
