import { readFileSync } from 'node:fs';

/**
 * Kinds of the first fields of a record. They have a fixed width in Avro, so that the sink can read and write them in
 * place: a lower-case UUID as text (37 bytes with its length), a time in microseconds (8 bytes for every accepted
 * date), a position in the log (8 bytes), a flag (1 byte). `key_time` is within the range that ingest accepts; `expiry`
 * is at most one year later.
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
  /** Offset of the field from the start of the record, in bytes. */
  readonly at: number;
}

/**
 * How the sink handles the events of a topic. The values are names of fixed-width fields. The sink skips the steps
 * whose option is not set.
 */
export interface SinkHandling {
  /**
   * The first event of a trace determines the trace location (project and time) of all events of the trace. The topic
   * then has the fixed-width fields `tenant_id`, `trace_id`, `id`, `session_id`, `start_time`, `trace_time` and
   * `is_patch`, in this order.
   */
  readonly assignsTraceLocation?: true;
  /** The rows expire with their trace: the sink sets `trace_tier` and `expires_at`. */
  readonly expires?: true;
  /**
   * An event that equals a stored one changes nothing. Events are equal if all their bytes are, except for those of the
   * trace location and the time of acceptance, `receivedAt`: the first field after those of fixed width that is not a string. `id` is a field of fixed
   * width.
   */
  readonly repeats?: { readonly id: string; readonly receivedAt: string };
  /** The hours that an event marks dirty: those of these times. */
  readonly dirtyHours?: { readonly tenant: string; readonly times: readonly string[] };
  /** Flag field of events that the sink stores. Events without the flag are only for followers of the topic. */
  readonly storedFlag?: string;
  /** Fields that the sink sets to the partition and offset of the record. */
  readonly positionFields?: { readonly partition: string; readonly offset: string };
  /**
   * How the table, and the tables that its views fill, are partitioned: an insert may touch only a limited number of
   * partitions of each table.
   */
  readonly tablePartitions?: readonly TablePartition[];
}

/**
 * The partitions of a table: the days, weeks or months of the field `time`, or, if `time` is not set, of the expiry that
 * the sink sets.
 */
export interface TablePartition {
  readonly time?: string;
  readonly unit: 'day' | 'week' | 'month';
}

/**
 * A topic of the event log, and the table that its events are inserted into. To add a topic, add an entry and a schema.
 */
export interface Topic extends SinkHandling {
  readonly name: string;
  readonly table: string;
  /** Avro schema of its records, as JSON text. Field names are column names. */
  readonly schema: string;
  /** Fields of the schema, in order. An insert has these columns and those of {@link Topic.prefix}. */
  readonly columns: readonly string[];
  /** The leading fields of the schema that have a fixed width. */
  readonly fixed: readonly FixedField[];
  /** Integer columns that the sink sets for each row, in addition to those of the schema. */
  readonly prefix: readonly string[];
}

export interface TopicEntry extends SinkHandling {
  readonly name: string;
  readonly table: string;
  readonly schema: string;
  readonly fixed?: readonly (readonly [name: string, kind: FixedKind])[];
}

export function defineTopic({ fixed = [], ...entry }: TopicEntry): Topic {
  const { fields } = JSON.parse(entry.schema) as { fields: { name: string }[] };
  let at = 0;
  const fixedFields = fixed.map(([name, kind]) => {
    const field = { name, kind, at };
    at += fixedWidthBytes[kind];
    return field;
  });
  const prefix = [
    'version',
    ...(entry.assignsTraceLocation ? ['location_version'] : []),
    ...(entry.expires ? ['trace_tier', 'expires_at'] : []),
  ];
  return { ...entry, columns: fields.map((field) => field.name), fixed: fixedFields, prefix };
}

const readAvroSchema = (file: string) => readFileSync(new URL(`./avro/${file}`, import.meta.url), 'utf8');

export const runEvents = defineTopic({
  name: 'run-events',
  table: 'run_events',
  schema: readAvroSchema('run-event.avsc'),
  fixed: [
    ['tenant_id', 'uuid'],
    ['trace_id', 'uuid'],
    ['id', 'uuid'],
    ['session_id', 'uuid'],
    ['start_time', 'key_time'],
    ['trace_time', 'key_time'],
    ['is_patch', 'flag'],
  ],
  assignsTraceLocation: true,
  expires: true,
  repeats: { id: 'id', receivedAt: 'first_received_at' },
  // Usage is counted by the time of the trace, and the facts of runs are listed by the time of the run.
  dirtyHours: { tenant: 'tenant_id', times: ['trace_time', 'start_time'] },
  // The partitions of `runs` and of `traces`. A run may start years after its trace.
  tablePartitions: [
    { time: 'start_time', unit: 'week' },
    { time: 'trace_time', unit: 'month' },
  ],
});

export const feedbackEvents = defineTopic({
  name: 'feedback-events',
  table: 'feedback',
  schema: readAvroSchema('feedback-event.avsc'),
  fixed: [
    ['tenant_id', 'uuid'],
    ['run_id', 'uuid'],
    ['id', 'uuid'],
  ],
  expires: true,
  repeats: { id: 'id', receivedAt: 'received_at' },
});

export const attachmentEvents = defineTopic({
  name: 'attachment-events',
  table: 'attachments',
  schema: readAvroSchema('attachment-event.avsc'),
  fixed: [
    ['tenant_id', 'uuid'],
    ['run_id', 'uuid'],
  ],
  expires: true,
  repeats: { id: 'run_id', receivedAt: 'received_at' },
  tablePartitions: [{ unit: 'week' }],
});

export const streamEvents = defineTopic({
  name: 'stream-events',
  table: 'stream_events',
  schema: readAvroSchema('stream-event.avsc'),
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
  storedFlag: 'kept',
  positionFields: { partition: 'log_partition', offset: 'log_offset' },
  tablePartitions: [{ time: 'expires_at', unit: 'day' }],
});

/**
 * Only append new topics: the index in this list is the schema id in the in-process log, including stored dead-letter
 * records.
 */
export const topics: readonly Topic[] = [runEvents, feedbackEvents, attachmentEvents, streamEvents];
