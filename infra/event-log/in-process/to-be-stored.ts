import type { Topic } from '../../../schemas/topics.ts';
import { fieldOffset } from '../avro.ts';
import type { LogRecord } from '../event-log.ts';

/** Drops the records whose `storedIf` flag is false, if the topic has one. */
export function toBeStored(topic: Topic, records: readonly LogRecord[]): readonly LogRecord[] {
  if (topic.storedIf === undefined) return records;
  const at = fieldOffset(topic, topic.storedIf);
  // Keep records that are too short to have the flag: the sink sends them to the dead-letter queue.
  return records.filter(({ value }) => value[at] !== 0);
}
