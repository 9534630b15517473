/**
 * Inserts one cut.
 *
 * Invariant: whatever dies in between, the rows are in the table at most once each after merging, and their hours are
 * counted again after the last insert that touched them.
 *
 *   1. The body is built and named: the token holds table, topic, partition, first and last offset, schema id and digest.
 *   2. The cut is written down. Died before: nothing happened, the records come again or were never acknowledged.
 *   3. The insert. Atomic only within one table partition; a repeat under the same token completes it, in the views too.
 *   4. One transaction notes the touched hours and forgets the cut. Died before: the written cut leads to the same note.
 */
import { createHash } from 'node:crypto';
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { avroContainer } from '../../../infra/event-log/avro-container.ts';
import type { Cut, EventLog, LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { noteHours } from '../../usage/note-hours.ts';
import type { RecordSchema } from './record-schemas.ts';
import { cutBytes, cutRows, deadLetters, failedInserts, insertSeconds } from './sink-metrics.ts';
import type { GoodRecord } from './split-into-cuts.ts';
import { touchedHours } from './touched-hours.ts';
import { noteVisible } from './visible-runs.ts';

export interface CutInsert {
  readonly topic: Topic;
  readonly partition: number;
  /** That of all of `records`. */
  readonly schema: Pick<RecordSchema, 'schema' | 'columns'>;
  readonly records: readonly GoodRecord[];
  /** Of the batch, where older events are stored anew: part of the token. */
  readonly tokenSalt?: string;
  /** Step 2: resolves when the cut is durable. */
  writeDown(cut: Cut): Promise<void>;
  /** Joins the transaction of step 4. */
  also?(transaction: Sql): Promise<void>;
  /** Of the cut that this one is a part of. */
  readonly bisection?: Bisection;
}

/** What is left for finding the refused records of one cut. */
interface Bisection {
  /** Inserts after which parts are halved no further than to `minRecords`. */
  insertsLeft: number;
  readonly minRecords: number;
}

/** Enough to isolate some ten records anywhere in a full cut, or any number in one place of it. */
const exactInserts = 256;
/** Afterwards at most twice as many further inserts. */
const maxParts = 128;
/** Dead-letter records that are written side by side. */
const deadLettersAtOnce = 100;

export interface InsertPorts {
  readonly log: EventLog;
  readonly warehouse: Warehouse;
  readonly database: Database;
  /** Tokens between steps 2 and 4, which recovery must leave alone. */
  readonly underWay: Set<string>;
}

/**
 * Inserts a cut. If ClickHouse refuses its data, bisects it until the refused records are alone, and writes those to the dead-letter
 * queue. The cut stays written down until its halves are done.
 *
 * The number of inserts is bounded: if many records are refused, the rest of the cut is bisected down to small parts only, and a refused
 * part goes to the dead-letter queue whole, with records that could be stored. A replay stores those.
 *
 * @returns the records that went to the dead-letter queue, as they came.
 * @throws what ClickHouse, Postgres or the log throw otherwise; the cut may then be stored in part and has to come again.
 */
export async function insertCut(insert: CutInsert, ports: InsertPorts): Promise<LogRecord[]> {
  const { topic, records } = insert;
  const body = avroContainer(
    insert.schema.schema,
    records.map(({ record }) => record.value),
  );
  const cut: Cut = { token: tokenOf(insert, body), hours: touchedHours(topic, records) };
  ports.underWay.add(cut.token);
  try {
    await insert.writeDown(cut);
    const refusal = await insertBody(insert, body, cut.token, ports);
    const refused = refusal === undefined ? [] : await insertHalves(insert, refusal, ports);
    await ports.database.transaction(async (transaction) => {
      await noteHours(transaction, cut.hours);
      await insert.also?.(transaction);
      await ports.log.finishCut(cut, transaction);
    });
    return refused;
  } finally {
    ports.underWay.delete(cut.token);
  }
}

/** Step 3. @returns the fault where ClickHouse refuses what the records hold. */
async function insertBody(
  { topic, schema, records }: CutInsert,
  body: Buffer,
  token: string,
  { warehouse }: InsertPorts,
): Promise<RunlakeError | undefined> {
  const { name, table } = topic;
  const { columns } = schema;
  const inserted = insertSeconds.startTimer({ table });
  try {
    await warehouse.insertBody({ name, table, columns, format: 'Avro', body, token });
  } catch (error) {
    failedInserts.inc({ table, code: isRunlakeError(error) ? error.code : 'INTERNAL' });
    if (isRunlakeError(error) && error.code === 'INSERT_DATA_REFUSED') return error;
    throw error;
  }
  inserted();
  cutRows.observe({ table }, records.length);
  cutBytes.observe({ table }, body.length);
  if (topic.placedByTrace) noteVisible(records);
  return undefined;
}

async function insertHalves(insert: CutInsert, refusal: RunlakeError, ports: InsertPorts): Promise<LogRecord[]> {
  const { also: _joinsTheWhole, ...half } = insert;
  const { records } = insert;
  const { bisection = { insertsLeft: exactInserts, minRecords: Math.ceil(records.length / maxParts) } } = insert;
  const minRecords = bisection.insertsLeft > 0 ? 1 : bisection.minRecords;
  if (records.length <= minRecords) return putAside(insert, refusal, ports);
  bisection.insertsLeft -= 2;
  const middle = Math.ceil(records.length / 2);
  const refused = await insertCut({ ...half, bisection, records: records.slice(0, middle) }, ports);
  return refused.concat(await insertCut({ ...half, bisection, records: records.slice(middle) }, ports));
}

async function putAside({ topic, records }: CutInsert, refusal: RunlakeError, { log }: InsertPorts) {
  const came = records.map(({ record, came = record }) => came);
  const cause = String(refusal.cause ?? refusal.message);
  const reason = came.length === 1 ? cause : `one of ${came.length} records that were inserted together: ${cause}`;
  for (let from = 0; from < came.length; from += deadLettersAtOnce) {
    const some = came.slice(from, from + deadLettersAtOnce);
    await Promise.all(some.map((record) => log.deadLetter(topic, record, reason, 'insert')));
  }
  deadLetters.inc({ topic: topic.name, step: 'insert' }, came.length);
  return came;
}

function tokenOf({ topic, partition, records, tokenSalt }: CutInsert, body: Buffer): string {
  const first = records[0] as GoodRecord;
  const last = records.at(-1) as GoodRecord;
  const digest = createHash('sha256').update(body).digest('hex').slice(0, 32);
  const salt = tokenSalt === undefined ? '' : `:${tokenSalt}`;
  return `${topic.table}:${topic.name}:${partition}:${first.record.offset}-${last.record.offset}:${first.schemaId}:${digest}${salt}`;
}
