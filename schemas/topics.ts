import { readFileSync } from 'node:fs';

/**
 * Fields that a record begins with are of constant width, so that the sink reads and writes them in place:
 * a UUID in text and small letters (37 bytes with its length), a time in microseconds (8 bytes for any of our days), a
 * position in the log (8 bytes), a flag (1 byte).
 * `key_time` lies in the range that ingest accepts, `expiry` at most a year after it.
 */
export type FixedKind = 'uuid' | 'key_time' | 'expiry' | 'time' | 'position' | 'flag';

export const fixedWidthBytes: Readonly<Record<FixedKind, number>> = {
  uuid: 37,
  key_time: 8,
  expiry: 8,
  time: 8,
  position: 8,
  flag: 1,
};

export interface FixedField {
  readonly name: string;
  readonly kind: FixedKind;
  /** Bytes before it, from the beginning of the record. */
  readonly at: number;
}

/** What the sink does with the events of a topic, by names of fixed fields. What is left out, it does not do. */
export interface Handling {
  /**
   * Events of a trace take the project and time that the first of them fixed. The fixed fields then are `tenant_id`,
   * `trace_id`, `id`, `session_id`, `start_time` and `trace_time`.
   */
  readonly placedByTrace?: true;
  /** The hour of usage that an event touches. */
  readonly usageHour?: { readonly tenant: string; readonly time: string };
  /** The flag of events that are stored; the others are only for those who read the log as it comes. */
  readonly storedIf?: string;
  /** Where the place of the record in the log is written. */
  readonly stamped?: { readonly partition: string; readonly offset: string };
  /** How the table is partitioned, for an insert may reach so many partitions only: every `days`, days counted from 1970. */
  readonly tablePartition?: { readonly time: string; readonly days: number; readonly shiftDays: number };
}

/** A topic of the event log and the table that its events go to. A further topic is one more entry and one schema. */
export interface Topic extends Handling {
  readonly name: string;
  readonly table: string;
  /** Avro schema of its records, as JSON text. Field names are column names. */
  readonly schema: string;
  /** Columns of an insert, in the order of the schema. */
  readonly columns: readonly string[];
  /** The first fields of the schema, as far as they are of constant width. */
  readonly fixed: readonly FixedField[];
}

export interface TopicEntry extends Handling {
  readonly name: string;
  readonly table: string;
  readonly schema: string;
  readonly fixed?: readonly (readonly [name: string, kind: FixedKind])[];
}

export function defineTopic({ fixed = [], ...entry }: TopicEntry): Topic {
  const { fields } = JSON.parse(entry.schema) as { fields: { name: string }[] };
  let at = 0;
  const placed = fixed.map(([name, kind]) => {
    const field = { name, kind, at };
    at += fixedWidthBytes[kind];
    return field;
  });
  return { ...entry, columns: fields.map((field) => field.name), fixed: placed };
}

const avro = (file: string) => readFileSync(new URL(`./avro/${file}`, import.meta.url), 'utf8');

export const runEvents = defineTopic({
  name: 'run-events',
  table: 'runs',
  schema: avro('run-event.avsc'),
  fixed: [
    ['tenant_id', 'uuid'],
    ['trace_id', 'uuid'],
    ['id', 'uuid'],
    ['session_id', 'uuid'],
    ['start_time', 'key_time'],
    ['trace_time', 'key_time'],
  ],
  placedByTrace: true,
  usageHour: { tenant: 'tenant_id', time: 'trace_time' },
  // Weeks begin on Monday, and 1970 began on a Thursday.
  tablePartition: { time: 'start_time', days: 7, shiftDays: 3 },
});

export const feedbackEvents = defineTopic({
  name: 'feedback-events',
  table: 'feedback',
  schema: avro('feedback-event.avsc'),
});

export const attachmentEvents = defineTopic({
  name: 'attachment-events',
  table: 'attachments',
  schema: avro('attachment-event.avsc'),
});

export const streamEvents = defineTopic({
  name: 'stream-events',
  table: 'stream_events',
  schema: avro('stream-event.avsc'),
  fixed: [
    ['organization_id', 'uuid'],
    ['thread_id', 'uuid'],
    ['run_id', 'uuid'],
    ['log_partition', 'position'],
    ['log_offset', 'position'],
    ['kept', 'flag'],
    ['expires_at', 'expiry'],
    ['created_at', 'time'],
  ],
  storedIf: 'kept',
  stamped: { partition: 'log_partition', offset: 'log_offset' },
  tablePartition: { time: 'expires_at', days: 1, shiftDays: 0 },
});

/** New ones come last: the place in this list is the schema's id in the in-process log, also of records that are put aside. */
export const topics: readonly Topic[] = [runEvents, feedbackEvents, attachmentEvents, streamEvents];
