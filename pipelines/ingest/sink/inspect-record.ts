import type { AvroWalk } from '../../../infra/event-log/avro-walk.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { schemaIdOf } from '../../../infra/event-log/wire-format.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { keyFieldsFault, startTimeMicrosOf, traceTimeMicrosOf } from '../run-event/key-fields.ts';

/** What the sink makes of one record: it can be stored, or never. */
export type Verdict =
  | { readonly kind: 'good'; readonly record: LogRecord; readonly schemaId: number }
  | { readonly kind: 'poison'; readonly record: LogRecord; readonly reason: string; readonly step: string };

export interface Inspection {
  readonly topic: Topic;
  /** The walk of each schema id that the batch names; absent where nobody knows the id. */
  readonly walks: ReadonlyMap<number, AvroWalk>;
  /** Accepted key times, in microseconds. */
  readonly earliestMicros: number;
  readonly latestMicros: number;
}

/** Looks at one record without decoding it: framing, schema, length, and for runs the key fields. */
export function inspectRecord(record: LogRecord, inspection: Inspection): Verdict {
  const schemaId = schemaIdOf(record.value);
  if (schemaId === undefined) return poison(record, 'framing', 'the value is not in the wire format');
  const walk = inspection.walks.get(schemaId);
  if (walk === undefined) return poison(record, 'schema', `the schema id ${schemaId} is not known`);
  const misfit = walk(record.value);
  if (misfit !== undefined) return poison(record, 'walk', misfit);
  if (inspection.topic.placedByTrace) {
    const reason = keyFieldsFault(record.value) ?? timesFault(record.value, inspection);
    if (reason !== undefined) return poison(record, 'key', reason);
  }
  return { kind: 'good', record, schemaId };
}

function timesFault(value: Buffer, { earliestMicros, latestMicros }: Inspection): string | undefined {
  for (const micros of [startTimeMicrosOf(value), traceTimeMicrosOf(value)]) {
    if (micros < earliestMicros || micros > latestMicros) return 'a key time is outside the accepted range';
  }
  return undefined;
}

function poison(record: LogRecord, step: string, reason: string): Verdict {
  return { kind: 'poison', record, reason, step };
}
