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
import { endInserts } from '../../../infra/clickhouse/server-queries.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { avroContainer, fieldOffset, timeMicrosAt, uuidAt } from '../../../infra/event-log/avro.ts';
import type { DirtyHour, EventLog, InsertBatch, LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { markHoursDirty } from '../../usage/mark-hours-dirty.ts';
import type { RecordSchema } from './prepare-records.ts';
import { batchBytes, batchRows, deadLetters, failedInserts, insertSeconds, recordVisible } from './sink-metrics.ts';
import type { ValidRecord } from './split-into-batches.ts';

const hourMicros = 3_600_000_000;

/** Tenant and hour of each record, without duplicates; empty if the topic's events are not billed. */
function dirtyHours(topic: Topic, records: readonly ValidRecord[]): DirtyHour[] {
  if (topic.usageHour === undefined) return [];
  const tenantAt = fieldOffset(topic, topic.usageHour.tenant);
  const timeAt = fieldOffset(topic, topic.usageHour.time);
  const hours = new Map<string, DirtyHour>();
  for (const { record } of records) {
    const tenantId = uuidAt(record.value, tenantAt);
    const hourSeconds = Math.floor(timeMicrosAt(record.value, timeAt) / hourMicros) * 3_600;
    hours.set(`${tenantId}${hourSeconds}`, { tenantId, hourSeconds });
  }
  return [...hours.values()];
}

interface BatchInsert {
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

interface InsertDeps {
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

/**
 * The SELECTs of the materialised views on `runs`, as in `schemas/clickhouse/0001_runs.sql`. An insert that was
 * interrupted may have reached `runs` but not the views. Repeated rows are harmless except in `traces`: a merged run
 * has its earliest time and its last sender, so the repair adds only missing traces.
 */
const views: Readonly<Record<string, string>> = {
  traces: `SELECT tenant_id, toStartOfHour(trace_time) AS hour, trace_id, min((first_received_at, id, session_id, user_id, key_id)) AS pick
    FROM found WHERE (tenant_id, toStartOfHour(trace_time), trace_id) NOT IN (
      SELECT tenant_id, hour, trace_id FROM traces WHERE (tenant_id, hour) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM dirty_hours)
    ) GROUP BY tenant_id, hour, trace_id`,
  run_locator: 'SELECT tenant_id, id, start_time, trace_id, trace_time, session_id FROM found',
  trace_locations: `SELECT tenant_id, trace_id, min((first_received_at, trace_time, session_id)) AS pick FROM found
    GROUP BY tenant_id, trace_id`,
  trace_spans: 'SELECT tenant_id, trace_id, min(start_time), max(start_time) FROM found GROUP BY tenant_id, trace_id',
};

/**
 * Inserts the traces of `hours` again from `runs` into the target tables of its materialised views.
 *
 * Reads the key columns of all runs of the tenants: the key times of a trace and of its runs may be far apart, so no
 * bound on `start_time` is safe. The four tables together take 0.5 s for a tenant with 2 million runs on two cores,
 * once for each insert batch that a crash left unfinished.
 *
 * @throws the errors of ClickHouse; a retry completes the repair.
 */
async function repairViews(clickhouse: ClickHouse, hours: readonly DirtyHour[]): Promise<void> {
  if (hours.length === 0) return;
  for (const [table, select] of Object.entries(views)) {
    await clickhouse.command({
      name: 'repair-views',
      sql: `INSERT INTO ${table} WITH found AS (
          SELECT tenant_id, id, start_time, trace_id, trace_time, first_received_at, session_id, user_id, key_id FROM runs
          WHERE tenant_id IN (SELECT tenant_id FROM dirty_hours)
            AND (tenant_id, toStartOfHour(trace_time)) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM dirty_hours)
        ) ${select}`,
      external: {
        name: 'dirty_hours',
        structure: 'tenant_id UUID, hour_seconds UInt32',
        rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
      },
      profile: 'repair',
      timeoutMs: 600_000,
    });
  }
}

interface RecoverDeps {
  readonly log: EventLog;
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/**
 * Completes insert batches that were begun and not completed. Their inserts may have happened, or may have reached
 * `runs` but not the views on it. Marks their hours dirty, because counting an hour again is harmless. Skips batches
 * that are in flight now.
 */
export async function recoverInserts(
  { log, clickhouse, database }: RecoverDeps,
  inFlight: ReadonlySet<string>,
): Promise<void> {
  for (const batch of await log.unfinishedInserts()) {
    if (inFlight.has(batch.token)) continue;
    // The insert may still be running; end it first, so that it writes no rows after the repair has read the table.
    await endInserts(clickhouse, batch.token);
    await repairViews(clickhouse, batch.hours);
    await database.transaction(async (transaction) => {
      await markHoursDirty(transaction, batch.hours);
      await log.completeInsert(batch, transaction);
    });
  }
}
