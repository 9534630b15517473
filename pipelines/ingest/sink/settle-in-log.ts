import { flagAt, placeOf, writePosition } from '../../../infra/event-log/fixed-fields.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { unkeptEvents } from './sink-metrics.ts';
import type { GoodRecord } from './split-into-cuts.ts';

/**
 * The records that are for the table, each with its place in the log written into it where the topic says so. Records that
 * are marked not to be kept are left out and counted. What came stays as it was: others may be reading it.
 */
export function settleInLog(topic: Topic, records: readonly GoodRecord[]): readonly GoodRecord[] {
  return stamped(topic, onlyKept(topic, records));
}

function onlyKept(topic: Topic, records: readonly GoodRecord[]): readonly GoodRecord[] {
  if (topic.storedIf === undefined) return records;
  const at = placeOf(topic, topic.storedIf);
  const kept = records.filter(({ record }) => flagAt(record.value, at));
  unkeptEvents.inc({ topic: topic.name }, records.length - kept.length);
  return kept;
}

function stamped(topic: Topic, records: readonly GoodRecord[]): readonly GoodRecord[] {
  if (topic.stamped === undefined) return records;
  const partitionAt = placeOf(topic, topic.stamped.partition);
  const offsetAt = placeOf(topic, topic.stamped.offset);
  return records.map((good) => {
    const { record } = good;
    const value = Buffer.from(record.value);
    writePosition(value, partitionAt, record.partition);
    writePosition(value, offsetAt, record.offset);
    return { ...good, came: record, record: { ...record, value } };
  });
}
