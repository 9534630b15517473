import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { earliestKeyTimeMicros, fixedFieldsError, type TimeBounds } from '../../../infra/event-log/fixed-fields.ts';
import { schemaIdOf } from '../../../infra/event-log/wire-format.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { maxRunAheadHours } from '../accept/check-times.ts';
import type { RecordSchema } from './record-schemas.ts';

/** Result of the inspection: the sink can store the record, or it never can. */
export type Verdict = { readonly kind: 'good'; readonly record: LogRecord; readonly schemaId: number } | Poison;

export interface Poison {
  readonly kind: 'poison';
  readonly record: LogRecord;
  readonly reason: string;
  readonly step: string;
}

export interface Inspection {
  readonly topic: Topic;
  /** By schema id. Ids that the log does not have, and ids of another record type, are missing. */
  readonly schemas: ReadonlyMap<number, RecordSchema>;
  readonly bounds: TimeBounds;
}

/** Validates one record without decoding it: framing, schema, length, and the fixed-width fields. */
export function inspectRecord(record: LogRecord, { topic, schemas, bounds }: Inspection): Verdict {
  const schemaId = schemaIdOf(record.value);
  if (schemaId === undefined) return poison(record, 'framing', 'the value is not in the wire format');
  const schema = schemas.get(schemaId);
  if (schema === undefined) return poison(record, 'schema', `the schema id ${schemaId} is not one of ${topic.name}`);
  const misfit = schema.walk(record.value);
  if (misfit !== undefined) return poison(record, 'walk', misfit);
  const reason = fixedFieldsError(record.value, topic, bounds);
  if (reason !== undefined) return poison(record, 'key', reason);
  return { kind: 'good', record, schemaId };
}

const dayMicros = 24 * 3_600 * 1_000_000;
/** Allows for clock differences between API processes and the sink, and for the time that an event waits in the log. */
const clockSlackMicros = 2 * dayMicros;

/** Time ranges that the sink accepts now. */
export function acceptedTimes(config: { readonly maxRunAgeDays: number }): TimeBounds {
  const nowMicros = Date.now() * 1_000;
  const earliest = nowMicros - config.maxRunAgeDays * dayMicros - clockSlackMicros;
  const latest = nowMicros + maxRunAheadHours * 3_600_000_000 + clockSlackMicros;
  // Ingest limits the age of start_time only. Key times come from dotted_order, which may be older.
  return { key_time: [earliestKeyTimeMicros, latest], expiry: [earliest, latest + 366 * dayMicros] };
}

function poison(record: LogRecord, step: string, reason: string): Verdict {
  return { kind: 'poison', record, reason, step };
}
