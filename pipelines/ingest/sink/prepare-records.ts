import {
  buildContainerSchema,
  earliestKeyTimeMicros,
  findFixedFieldsError,
  getFieldOffset,
  readFlagAt,
  readSchemaId,
  type TimeBounds,
  writePosition,
} from '../../../infra/event-log/avro.ts';
import { compileRecordValidator, listColumns, type RecordValidator } from '../../../infra/event-log/avro-schema.ts';
import {
  type DeadLetterStep,
  type EventLog,
  type LogRecord,
  readAcceptedAtMs,
} from '../../../infra/event-log/event-log.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { maxRunAheadHours } from '../accept/draft.ts';
import { transientEvents } from './sink-metrics.ts';
import type { ValidRecord } from './split-into-batches.ts';

/**
 * Drops and counts the records whose `storedFlag` flag is false, and writes partition and offset into the records of
 * topics with `positionFields`. Changes only copies, because other consumers may read the same buffers.
 */
export function prepareRecords(topic: Topic, records: readonly ValidRecord[]): readonly ValidRecord[] {
  return stampPositions(topic, dropTransientRecords(topic, records));
}

function dropTransientRecords(topic: Topic, records: readonly ValidRecord[]): readonly ValidRecord[] {
  if (topic.storedFlag === undefined) return records;
  const at = getFieldOffset(topic, topic.storedFlag);
  const kept = records.filter(({ record }) => readFlagAt(record.value, at));
  transientEvents.inc({ topic: topic.name }, records.length - kept.length);
  return kept;
}

function stampPositions(topic: Topic, records: readonly ValidRecord[]): readonly ValidRecord[] {
  if (topic.positionFields === undefined) return records;
  const partitionAt = getFieldOffset(topic, topic.positionFields.partition);
  const offsetAt = getFieldOffset(topic, topic.positionFields.offset);
  return records.map((validRecord) => {
    const { record } = validRecord;
    const value = Buffer.from(record.value);
    writePosition(value, partitionAt, record.partition);
    writePosition(value, offsetAt, record.offset);
    return { ...validRecord, original: record, record: { ...record, value } };
  });
}

/** Schema with which this or another release wrote records of a topic. */
export interface RecordSchema {
  /** Schema of the containers of these records, as JSON text. */
  readonly containerSchema: string;
  readonly validate: RecordValidator;
  /**
   * Fields of a container, which are also the columns of the insert; ClickHouse fills all other columns with their
   * defaults.
   */
  readonly columns: readonly string[];
}

/** Caches the compiled schemas of records that were read from the log. */
export class RecordSchemas {
  readonly #log: Pick<EventLog, 'getSchema'>;
  readonly #byTopic = new Map<Topic, Map<number, RecordSchema>>();

  constructor(log: Pick<EventLog, 'getSchema'>) {
    this.#log = log;
  }

  /**
   * Returns the known schemas of `topic` by id, including the schemas of `records`. Ids that the log does not have, and
   * ids of another record type, are missing.
   *
   * @throws errors of the log if it cannot look up an id now.
   */
  async of(topic: Topic, records: readonly LogRecord[]): Promise<ReadonlyMap<number, RecordSchema>> {
    const known = this.#byTopic.get(topic) ?? new Map<number, RecordSchema>();
    this.#byTopic.set(topic, known);
    const seen = new Set<number>();
    for (const { value } of records) {
      const id = readSchemaId(value);
      if (id === undefined || known.has(id) || seen.has(id)) continue;
      seen.add(id);
      const schema = await this.#log.getSchema(id);
      const compiled = schema === undefined ? undefined : compileSchema(topic, schema);
      if (compiled) known.set(id, compiled);
    }
    return known;
  }

  /** Returns a schema that {@link RecordSchemas.of} has loaded. */
  get(topic: Topic, id: number): RecordSchema | undefined {
    return this.#byTopic.get(topic)?.get(id);
  }
}

function compileSchema(topic: Topic, schema: string): RecordSchema | undefined {
  const columns = listColumns(schema, topic);
  if (columns === undefined) return undefined;
  return {
    containerSchema: buildContainerSchema(schema, topic.prefix),
    columns: [...topic.prefix, ...columns],
    validate: compileRecordValidator(schema),
  };
}

/** Result of the inspection: the sink either can store the record or never can. */
type InspectionResult = { readonly kind: 'good'; readonly record: LogRecord; readonly schemaId: number } | PoisonRecord;

export interface PoisonRecord {
  readonly kind: 'poison';
  readonly record: LogRecord;
  readonly reason: string;
  readonly step: DeadLetterStep;
}

interface Inspection {
  readonly topic: Topic;
  /** Schemas by id. Ids that the log does not have, and ids of another record type, are missing. */
  readonly schemas: ReadonlyMap<number, RecordSchema>;
  readonly config: AcceptedTimesConfig;
  /** Time ranges that the sink accepts now. */
  readonly bounds: TimeBounds;
}

/** Validates one record without decoding it: framing, schema, length, and the fixed-width fields. */
export function inspectRecord(record: LogRecord, { topic, schemas, config, bounds }: Inspection): InspectionResult {
  const schemaId = readSchemaId(record.value);
  if (schemaId === undefined) return createPoisonRecord(record, 'framing', 'the value is not in the wire format');
  const schema = schemas.get(schemaId);
  if (schema === undefined)
    return createPoisonRecord(record, 'schema', `the schema id ${schemaId} is not one of ${topic.name}`);
  const validationError = schema.validate(record.value);
  if (validationError !== undefined) return createPoisonRecord(record, 'walk', validationError);
  const reason =
    findFixedFieldsError(record.value, topic, bounds) &&
    findFixedFieldsError(record.value, topic, computeAcceptedTimes(config, readAcceptedAtMs(record)));
  if (reason !== undefined) return createPoisonRecord(record, 'key', reason);
  return { kind: 'good', record, schemaId };
}

const dayMicros = 24 * 3_600 * 1_000_000;
/**
 * Tolerance for clock differences between API processes and the sink, and for the time that an event waits in the log.
 */
const clockSlackMicros = 2 * dayMicros;

type AcceptedTimesConfig = { readonly maxRunAgeDays: number };

/**
 * Returns the time ranges that the sink accepts now, or at the time when an event was accepted if that is later: the clock
 * of the sink may be behind.
 */
export function computeAcceptedTimes(config: AcceptedTimesConfig, acceptedAtMs = 0): TimeBounds {
  const nowMicros = Math.max(Date.now(), acceptedAtMs) * 1_000;
  const earliest = nowMicros - config.maxRunAgeDays * dayMicros - clockSlackMicros;
  const latest = nowMicros + maxRunAheadHours * 3_600_000_000 + clockSlackMicros;
  // Ingest limits the age of key times when it accepts events; after that, an event may wait in the log for any length
  // of time.
  return { key_time: [earliestKeyTimeMicros, latest], expiry: [earliest, latest + 366 * dayMicros] };
}

function createPoisonRecord(record: LogRecord, step: DeadLetterStep, reason: string): InspectionResult {
  return { kind: 'poison', record, reason, step };
}
