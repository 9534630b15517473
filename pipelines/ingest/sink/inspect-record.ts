import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { earliestKeyTimeMicros, fixedFieldsFault, type TimeBounds } from '../../../infra/event-log/fixed-fields.ts';
import { schemaIdOf } from '../../../infra/event-log/wire-format.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { RecordSchema } from './record-schemas.ts';

/** What the sink makes of one record: it can be stored, or never. */
export type Verdict = { readonly kind: 'good'; readonly record: LogRecord; readonly schemaId: number } | Poison;

export interface Poison {
  readonly kind: 'poison';
  readonly record: LogRecord;
  readonly reason: string;
  readonly step: string;
}

export interface Inspection {
  readonly topic: Topic;
  /** Of each schema id that the batch names; absent where nobody knows the id, or it is not one of this topic's. */
  readonly schemas: ReadonlyMap<number, RecordSchema>;
  readonly bounds: TimeBounds;
}

/** Looks at one record without decoding it: framing, schema, length, and its fields of constant width. */
export function inspectRecord(record: LogRecord, { topic, schemas, bounds }: Inspection): Verdict {
  const schemaId = schemaIdOf(record.value);
  if (schemaId === undefined) return poison(record, 'framing', 'the value is not in the wire format');
  const schema = schemas.get(schemaId);
  if (schema === undefined) return poison(record, 'schema', `the schema id ${schemaId} is not one of ${topic.name}`);
  const misfit = schema.walk(record.value);
  if (misfit !== undefined) return poison(record, 'walk', misfit);
  const reason = fixedFieldsFault(record.value, topic, bounds);
  if (reason !== undefined) return poison(record, 'key', reason);
  return { kind: 'good', record, schemaId };
}

const dayMicros = 24 * 3_600 * 1_000_000;
/** The clock of those who accepted an event may differ from ours, and the event may have waited. */
const clockSlackMicros = 2 * dayMicros;

/** Times that are accepted at this moment. */
export function acceptedTimes(config: {
  readonly maxRunAgeDays: number;
  readonly maxRunAheadHours: number;
}): TimeBounds {
  const nowMicros = Date.now() * 1_000;
  const earliest = nowMicros - config.maxRunAgeDays * dayMicros - clockSlackMicros;
  const latest = nowMicros + config.maxRunAheadHours * 3_600_000_000 + clockSlackMicros;
  // Ingest limits the age of start_time; dotted_order, which key times come from, may be older.
  return { key_time: [earliestKeyTimeMicros, latest], expiry: [earliest, latest + 366 * dayMicros] };
}

function poison(record: LogRecord, step: string, reason: string): Verdict {
  return { kind: 'poison', record, reason, step };
}
