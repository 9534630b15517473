import type { Topic } from '../../../schemas/topics.ts';
import type { LogRecord } from '../event-log.ts';
import { placeOf } from '../fixed-fields.ts';

/** Those that a group may store: of a topic with `storedIf` without the records whose flag says no. */
export function toBeStored(topic: Topic, records: readonly LogRecord[]): readonly LogRecord[] {
  if (topic.storedIf === undefined) return records;
  const at = placeOf(topic, topic.storedIf);
  // A record that is too short to have a flag is for the sink to judge.
  return records.filter(({ value }) => value[at] !== 0);
}
