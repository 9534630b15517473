/**
 * Inserts one insert batch: rows that go to ClickHouse in one INSERT.
 *
 * Invariant: an insert may be repeated, in whole or in part, and in any order with others: merged reads return the same
 * rows. The roll-up counts the affected hours again after the last insert that touched them.
 *
 *   1. Insert the rows and the versions of their events (`event-versions.ts`). If ClickHouse refuses the data, or has too
 *      little time or memory for the batch, bisect it. If there is too little memory for one record, insert it without skip
 *      indexes. An insert that fails for another reason may have stored a part of its rows; the log delivers the batch again.
 *   2. Send the refused records to the dead-letter queue. All inserts of the batch have succeeded, so that a batch that is
 *      delivered again after a failed insert does not write a dead-letter record each time.
 *   3. Mark the hours dirty. If the process crashes before this step, the log delivers the batch again.
 */
import type { ClickHouse, InsertBody } from '../../../infra/clickhouse/clickhouse.ts';
import { findExceededLimit } from '../../../infra/clickhouse/clickhouse-error.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { AvroContainer, getFieldOffset, readTimeMicrosAt, readUuidAt } from '../../../infra/event-log/avro.ts';
import type { DirtyHour, EventLog, LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { openSlices } from '../../../infra/timeouts/time-slices.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { neverSeconds, traceTiers } from '../../retention/lifetimes.ts';
import { markHoursDirty } from '../../usage/mark-hours-dirty.ts';
import { hourSeconds } from '../run-event/times.ts';
import { encodeEventVersions, eventVersionsInsert } from './event-versions.ts';
import type { RecordSchema } from './prepare-records.ts';
import {
  batchBytes,
  batchRows,
  deadLetters,
  failedInserts,
  insertSeconds,
  recordVisibleEvents,
} from './sink-metrics.ts';
import type { ValidRecord } from './split-into-batches.ts';

/** Returns tenant and hours of each record, without duplicates; empty if the topic's events mark no hours. */
function listDirtyHours(topic: Topic, records: readonly ValidRecord[]): DirtyHour[] {
  if (topic.dirtyHours === undefined) return [];
  const tenantAt = getFieldOffset(topic, topic.dirtyHours.tenant);
  const timesAt = topic.dirtyHours.times.map((name) => getFieldOffset(topic, name));
  const hours = new Map<string, DirtyHour>();
  for (const { record } of records) {
    const tenantId = readUuidAt(record.value, tenantAt);
    for (const timeAt of timesAt) {
      const hour = hourSeconds(readTimeMicrosAt(record.value, timeAt));
      hours.set(`${tenantId}${hour}`, { tenantId, hourSeconds: hour });
    }
  }
  return [...hours.values()];
}

interface BatchInsert {
  readonly topic: Topic;
  readonly partition: number;
  /** Schema with which all of `records` were written. */
  readonly schema: Pick<RecordSchema, 'containerSchema' | 'columns'>;
  readonly records: readonly ValidRecord[];
}

/** Budget for isolating the refused records of one insert batch. All halves of the batch share it. */
interface BisectionBudget {
  /** Remaining number of inserts. When it is used up, parts of `minRecords` or fewer are no longer halved. */
  insertsLeft: number;
  /** Parts of so many records or fewer are not halved because they take too much time: each attempt lasts as long. */
  readonly minRecords: number;
}

/**
 * Maximum number of inserts for bisecting down to single records. It suffices for about ten refused records anywhere in
 * a full insert batch, or for any number of adjacent refused records.
 */
const maxExactInserts = 256;
/**
 * After `maxExactInserts`, a batch is bisected into at most this many parts, which takes at most twice as many inserts.
 */
const maxParts = 128;
/** Maximum number of dead-letter records that are written concurrently. */
const maxConcurrentDeadLetters = 100;

interface InsertDeps {
  readonly log: EventLog;
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/**
 * Inserts one batch. If ClickHouse refuses its data, bisects the batch until the refused records are isolated, and
 * writes these records to the dead-letter queue. Also bisects a batch for which ClickHouse has too little time or memory.
 *
 * The number of inserts is at most three times the number of records. It is much lower if there is memory for them: if
 * ClickHouse refuses many records, the remaining records are bisected down to small parts only, and a refused part goes to
 * the dead-letter queue with its valid records. A replay stores the valid records.
 *
 * @returns the records that went to the dead-letter queue, as they were in the log.
 * @throws any other error of ClickHouse, Postgres or the log. Part of the batch may then be stored, so the caller has
 *   to retry the batch.
 */
export async function insertBatch(insert: BatchInsert, deps: InsertDeps): Promise<LogRecord[]> {
  const bisection = { insertsLeft: maxExactInserts, minRecords: Math.ceil(insert.records.length / maxParts) };
  const [stored, versions] = await Promise.allSettled([
    insertOrBisect(insert, insert.records, { ...deps, bisection }),
    insertVersions(insert, deps),
  ]);
  // Both have ended, so no insert is in progress when the batch is repeated.
  if (stored.status === 'rejected') throw stored.reason;
  if (versions.status === 'rejected') {
    if (findExceededLimit(versions.reason) === undefined) throw versions.reason;
    // The insert of the rows may have taken the memory or the time.
    await insertVersions(insert, deps);
  }
  const refusedRecords = await sendToDeadLetters(insert.topic, stored.value, deps);
  const hours = listDirtyHours(insert.topic, insert.records);
  await markHoursDirty(deps.database, hours);
  return refusedRecords;
}

/** Inserts the versions of the events of a batch, also of those that are refused. */
async function insertVersions({ topic, records }: BatchInsert, { clickhouse }: InsertDeps): Promise<void> {
  const body = encodeEventVersions(topic, records);
  if (body !== undefined) await clickhouse.insertBody({ ...eventVersionsInsert, name: topic.name, body });
}

interface PartDeps extends InsertDeps {
  readonly bisection: BisectionBudget;
}

/** Records that ClickHouse refused together, and why. */
interface RefusedPart {
  readonly records: readonly ValidRecord[];
  readonly refusal: RunlakeError;
}

/** Performs step 1 for a part of the batch. @returns the refused records, in parts that were not bisected further. */
async function insertOrBisect(
  insert: BatchInsert,
  records: readonly ValidRecord[],
  deps: PartDeps,
): Promise<RefusedPart[]> {
  const { bisection } = deps;
  let refusal: RunlakeError | undefined;
  try {
    refusal = await insertPart(insert, records, deps);
  } catch (error) {
    const limit = findExceededLimit(error);
    const minRecords = limit === 'time' ? bisection.minRecords : 1;
    if (limit !== undefined && records.length > minRecords) return insertHalves(insert, records, deps);
    if (limit !== 'memory') throw error;
    refusal = await insertPart(insert, records, deps, scarceMemorySettings);
  }
  if (refusal === undefined) return [];
  const minRecords = bisection.insertsLeft > 0 ? 1 : bisection.minRecords;
  if (records.length <= minRecords) return [{ records, refusal }];
  bisection.insertsLeft -= 2;
  return insertHalves(insert, records, deps);
}

async function insertHalves(
  insert: BatchInsert,
  records: readonly ValidRecord[],
  deps: PartDeps,
): Promise<RefusedPart[]> {
  const middle = Math.ceil(records.length / 2);
  const refused = await insertOrBisect(insert, records.slice(0, middle), deps);
  return refused.concat(await insertOrBisect(insert, records.slice(middle), deps));
}

/** Version of the location in rows of events that did not state their location. */
const unstatedVersion = (1n << 63n) - 1n;

/** Returns the values of the columns {@link Topic.prefix}. */
function buildPrefix(topic: Topic, { record, statesLocation, lifetime }: ValidRecord): readonly bigint[] {
  const prefix = [record.version];
  if (topic.assignsTraceLocation) prefix.push(statesLocation ? record.version : unstatedVersion);
  if (topic.expires) {
    const { tier, expiresAtSeconds } = lifetime ?? { tier: 'longlived', expiresAtSeconds: neverSeconds };
    prefix.push(BigInt(traceTiers[tier]), BigInt(expiresAtSeconds));
  }
  return prefix;
}

/** Bytes of a row in addition to its record: prefix, lengths and marker. */
const rowOverheadBytes = 80;

async function encodeRows(topic: Topic, schema: string, records: readonly ValidRecord[]): Promise<Buffer> {
  const endSlice = openSlices();
  const bytes = records.reduce((sum, { record }) => sum + record.value.length + rowOverheadBytes, 0);
  const container = new AvroContainer(schema, bytes);
  for (const valid of records) {
    container.add({ value: valid.record.value, prefix: buildPrefix(topic, valid) });
    const turn = endSlice();
    if (turn) await turn;
  }
  return container.finish();
}

/**
 * For a single record. Merges build its skip indexes later: those of tags and metadata take as much memory as everything
 * else. One row needs no merge.
 */
const scarceMemorySettings = { materialize_skip_indexes_on_insert: 0, optimize_on_insert: 0 } as const;

/** Inserts a part of the batch. @returns the error if ClickHouse refuses the data of the records. */
async function insertPart(
  { topic, schema }: BatchInsert,
  records: readonly ValidRecord[],
  { clickhouse }: InsertDeps,
  settings: InsertBody['settings'] = {},
): Promise<RunlakeError | undefined> {
  const { name, table } = topic;
  const body = await encodeRows(topic, schema.containerSchema, records);
  const stopTimer = insertSeconds.startTimer({ table });
  try {
    await clickhouse.insertBody({ name, table, columns: schema.columns, format: 'Avro', body, settings });
  } catch (error) {
    failedInserts.inc({ table, code: isRunlakeError(error) ? error.code : 'INTERNAL' });
    if (isRunlakeError(error) && error.code === 'INSERT_DATA_REFUSED') return error;
    throw error;
  }
  stopTimer();
  batchRows.observe({ table }, records.length);
  batchBytes.observe({ table }, body.length);
  if (topic.assignsTraceLocation) recordVisibleEvents(records);
  return undefined;
}

/** Performs step 2. @returns the refused records, as they were in the log. */
async function sendToDeadLetters(
  topic: Topic,
  refused: readonly RefusedPart[],
  { log }: InsertDeps,
): Promise<LogRecord[]> {
  const sent: LogRecord[] = [];
  for (const { records, refusal } of refused) {
    const originals = records.map(({ record, original = record }) => original);
    const cause = String(refusal.cause ?? refusal.message);
    const reason =
      originals.length === 1 ? cause : `one of ${originals.length} records that were inserted together: ${cause}`;
    for (let from = 0; from < originals.length; from += maxConcurrentDeadLetters) {
      const some = originals.slice(from, from + maxConcurrentDeadLetters);
      await Promise.all(some.map((record) => log.deadLetter(topic, record, reason, 'insert')));
    }
    deadLetters.inc({ topic: topic.name, step: 'insert' }, originals.length);
    sent.push(...originals);
  }
  return sent;
}
