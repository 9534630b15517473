import { fieldOffset, flagAt, writePosition } from '../../../infra/event-log/fixed-fields.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { unkeptEvents } from './sink-metrics.ts';
import type { ValidRecord } from './split-into-batches.ts';

/**
 * Drops and counts the records whose `storedIf` flag is false, and writes partition and offset into those of topics
 * with `stamped`. Copies what it changes, because other consumers may read the same buffers.
 */
export function prepareRecords(topic: Topic, records: readonly ValidRecord[]): readonly ValidRecord[] {
  return stampPositions(topic, dropUnstored(topic, records));
}

function dropUnstored(topic: Topic, records: readonly ValidRecord[]): readonly ValidRecord[] {
  if (topic.storedIf === undefined) return records;
  const at = fieldOffset(topic, topic.storedIf);
  const kept = records.filter(({ record }) => flagAt(record.value, at));
  unkeptEvents.inc({ topic: topic.name }, records.length - kept.length);
  return kept;
}

function stampPositions(topic: Topic, records: readonly ValidRecord[]): readonly ValidRecord[] {
  if (topic.stamped === undefined) return records;
  const partitionAt = fieldOffset(topic, topic.stamped.partition);
  const offsetAt = fieldOffset(topic, topic.stamped.offset);
  return records.map((good) => {
    const { record } = good;
    const value = Buffer.from(record.value);
    writePosition(value, partitionAt, record.partition);
    writePosition(value, offsetAt, record.offset);
    return { ...good, original: record, record: { ...record, value } };
  });
}
