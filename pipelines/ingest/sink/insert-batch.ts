/**
 * Inserts one insert batch: rows that go to ClickHouse in one INSERT under one deduplication token.
 *
 * Invariant: after a crash at any step, merged reads return each row at most once, and the roll-up counts the affected hours
 * again after the last insert that touched them.
 *
 *   1. Build the body and its token: table, topic, partition, first and last offset, schema id and digest.
 *   2. Persist the insert batch. After a crash before this step nothing is stored: Kafka redelivers the records, or the
 *      in-process log never acknowledged them.
 *   3. Insert. The insert is atomic only within one table partition; a retry under the same token completes the rest,
 *      materialised views included.
 *   4. In one transaction, mark the hours dirty and complete the insert batch. After a crash before this step,
 *      recovery finds the persisted insert batch and marks the same hours.
 */
import { createHash } from 'node:crypto';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { avroContainer } from '../../../infra/event-log/avro-container.ts';
import type { EventLog, InsertBatch, LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { markHoursDirty } from '../../usage/mark-hours-dirty.ts';
import { dirtyHours } from './dirty-hours.ts';
import type { RecordSchema } from './record-schemas.ts';
import { batchBytes, batchRows, deadLetters, failedInserts, insertSeconds } from './sink-metrics.ts';
import type { ValidRecord } from './split-into-batches.ts';
import { recordVisible } from './visible-runs.ts';

export interface BatchInsert {
  readonly topic: Topic;
  readonly partition: number;
  /** Schema that all of `records` were written under. */
  readonly schema: Pick<RecordSchema, 'schema' | 'columns'>;
  readonly records: readonly ValidRecord[];
  /** Token salt of the records' batch; part of the token. */
  readonly tokenSalt?: string;
  /** Step 2: resolves when the insert batch is durable. */
  begin(insertBatch: InsertBatch): Promise<void>;
  /** Runs in the transaction of step 4. */
  also?(transaction: Sql): Promise<void>;
  /** Set on the halves of a refused insert batch. */
  readonly bisection?: Bisection;
}

/** Budget for isolating the refused records of one insert batch; shared by all its halves. */
interface Bisection {
  /** Once this is used up, parts of `minRecords` or fewer are no longer halved. */
  insertsLeft: number;
  readonly minRecords: number;
}

/** Enough to isolate about ten records anywhere in a full insert batch, or any number of adjacent ones. */
const exactInserts = 256;
/** Bounds the inserts after `exactInserts` to twice this number. */
const maxParts = 128;
/** Dead-letter records that are written concurrently. */
const deadLettersAtOnce = 100;

export interface InsertDeps {
  readonly log: EventLog;
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  /** Tokens of insert batches between steps 2 and 4; recovery skips them. */
  readonly inFlight: Set<string>;
}

/**
 * Inserts one batch. If ClickHouse refuses its data, bisects it until the refused records are isolated, and writes
 * those to the dead-letter queue. The insert batch stays persisted until its halves are complete.
 *
 * The number of inserts is bounded: if ClickHouse refuses many records, the rest is bisected down to small parts only,
 * and a refused part goes to the dead-letter queue whole, valid records included. A replay stores those.
 *
 * @returns the records that went to the dead-letter queue, as they were in the log.
 * @throws any other error of ClickHouse, Postgres or the log. Part of the batch may then be stored, so the caller has
 *   to retry it.
 */
export async function insertBatch(insert: BatchInsert, deps: InsertDeps): Promise<LogRecord[]> {
  const { topic, records } = insert;
  const body = avroContainer(
    insert.schema.schema,
    records.map(({ record }) => record.value),
  );
  const batch: InsertBatch = { token: buildToken(insert, body), hours: dirtyHours(topic, records) };
  deps.inFlight.add(batch.token);
  try {
    await insert.begin(batch);
    const refusal = await insertBody(insert, body, batch.token, deps);
    const refused = refusal === undefined ? [] : await insertHalves(insert, refusal, deps);
    await deps.database.transaction(async (transaction) => {
      await markHoursDirty(transaction, batch.hours);
      await insert.also?.(transaction);
      await deps.log.completeInsert(batch, transaction);
    });
    return refused;
  } finally {
    deps.inFlight.delete(batch.token);
  }
}

/** Step 3. @returns the error if ClickHouse refuses the data of the records. */
async function insertBody(
  { topic, schema, records }: BatchInsert,
  body: Buffer,
  token: string,
  { clickhouse }: InsertDeps,
): Promise<RunlakeError | undefined> {
  const { name, table } = topic;
  const { columns } = schema;
  const inserted = insertSeconds.startTimer({ table });
  try {
    await clickhouse.insertBody({ name, table, columns, format: 'Avro', body, token });
  } catch (error) {
    failedInserts.inc({ table, code: isRunlakeError(error) ? error.code : 'INTERNAL' });
    if (isRunlakeError(error) && error.code === 'INSERT_DATA_REFUSED') return error;
    throw error;
  }
  inserted();
  batchRows.observe({ table }, records.length);
  batchBytes.observe({ table }, body.length);
  if (topic.placedByTrace) recordVisible(records);
  return undefined;
}

async function insertHalves(insert: BatchInsert, refusal: RunlakeError, deps: InsertDeps): Promise<LogRecord[]> {
  const { also: _runsWithTheWhole, ...half } = insert;
  const { records } = insert;
  const { bisection = { insertsLeft: exactInserts, minRecords: Math.ceil(records.length / maxParts) } } = insert;
  const minRecords = bisection.insertsLeft > 0 ? 1 : bisection.minRecords;
  if (records.length <= minRecords) return sendToDeadLetters(insert, refusal, deps);
  bisection.insertsLeft -= 2;
  const middle = Math.ceil(records.length / 2);
  const refused = await insertBatch({ ...half, bisection, records: records.slice(0, middle) }, deps);
  return refused.concat(await insertBatch({ ...half, bisection, records: records.slice(middle) }, deps));
}

async function sendToDeadLetters({ topic, records }: BatchInsert, refusal: RunlakeError, { log }: InsertDeps) {
  const originals = records.map(({ record, original = record }) => original);
  const cause = String(refusal.cause ?? refusal.message);
  const reason =
    originals.length === 1 ? cause : `one of ${originals.length} records that were inserted together: ${cause}`;
  for (let from = 0; from < originals.length; from += deadLettersAtOnce) {
    const some = originals.slice(from, from + deadLettersAtOnce);
    await Promise.all(some.map((record) => log.deadLetter(topic, record, reason, 'insert')));
  }
  deadLetters.inc({ topic: topic.name, step: 'insert' }, originals.length);
  return originals;
}

function buildToken({ topic, partition, records, tokenSalt }: BatchInsert, body: Buffer): string {
  const first = records[0] as ValidRecord;
  const last = records.at(-1) as ValidRecord;
  const digest = createHash('sha256').update(body).digest('hex').slice(0, 32);
  const salt = tokenSalt === undefined ? '' : `:${tokenSalt}`;
  return `${topic.table}:${topic.name}:${partition}:${first.record.offset}-${last.record.offset}:${first.schemaId}:${digest}${salt}`;
}
