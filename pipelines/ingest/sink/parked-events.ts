import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import { tenantIdOf, traceIdOf } from '../run-event/key-fields.ts';

/** An event that waits for its trace, as it was parked. */
export interface ParkedEvent {
  readonly id: number;
  readonly record: LogRecord;
}

interface ParkedRow {
  readonly id: number;
  readonly partition: number;
  readonly log_offset: number;
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: Record<string, string>;
}

/** Of one statement; values travel as hexadecimal text. */
const maxStatementEvents = 1_000;
const maxStatementBytes = 8 * 1024 * 1024;

/** Where parked events stood in the log. */
export interface ParkedFrom {
  readonly topic: string;
  /** That of a replay, where older events are stored anew; else empty. */
  readonly salt: string;
}

/**
 * Parks events of traces that nobody knows yet. Resolves when that is durable.
 *
 * An offset is parked once for good, also where its event has joined its trace since: a process that lost its partition and
 * goes on late would park it again, and it would join a second time, after newer events. A replay starts afresh.
 */
export async function parkEvents(
  database: Database,
  { topic, salt }: ParkedFrom,
  records: readonly LogRecord[],
): Promise<void> {
  await database.transaction(async (transaction) => {
    for (const chunk of chunksOf(records)) {
      await transaction.query(
        `WITH events AS (
           SELECT * FROM unnest($2::int[], $3::bigint[], $4::uuid[], $5::uuid[], $6::bytea[], $7::bytea[], $8::text[])
             AS e (partition, log_offset, tenant_id, trace_id, key, value, headers)
         ), fresh AS (
           INSERT INTO parked_offsets (topic, partition, log_offset, salt)
           SELECT $1, partition, log_offset, $9 FROM events ORDER BY partition, log_offset
           ON CONFLICT DO NOTHING RETURNING partition, log_offset
         )
         INSERT INTO parked_events (topic, partition, log_offset, tenant_id, trace_id, key, value, headers)
         SELECT $1, partition, log_offset, tenant_id, trace_id, key, value, headers::jsonb
         FROM events JOIN fresh USING (partition, log_offset) ORDER BY partition, log_offset ON CONFLICT DO NOTHING`,
        [
          topic,
          chunk.map(({ partition }) => partition),
          chunk.map(({ offset }) => offset),
          chunk.map(({ value }) => tenantIdOf(value)),
          chunk.map(({ value }) => traceIdOf(value)),
          chunk.map(({ key }) => Buffer.from(key)),
          chunk.map(({ value }) => value),
          chunk.map(({ headers }) => JSON.stringify(headers)),
          salt,
        ],
      );
    }
  });
}

/** Parts of `records` that one statement takes. */
function* chunksOf(records: readonly LogRecord[]): Generator<readonly LogRecord[]> {
  let from = 0;
  let bytes = 0;
  for (const [index, { value }] of records.entries()) {
    const isFull = index - from >= maxStatementEvents || bytes + value.length > maxStatementBytes;
    if (isFull && index > from) {
      yield records.slice(from, index);
      from = index;
      bytes = 0;
    }
    bytes += value.length;
  }
  if (from < records.length) yield records.slice(from);
}

/** Forgets offsets parked before `before`: longer ago than a process can have been asleep. */
export async function forgetParkedOffsets(database: Sql, before: Date): Promise<void> {
  await database.query('DELETE FROM parked_offsets WHERE parked_at < $1', [before.toISOString()]);
}

/**
 * The parked events of `traces`, in the order of the log, kept from {@link takeStaleEvents} until they are unparked: whoever
 * of the two comes first has them, so that none is both stored and a dead letter.
 */
export async function claimParkedEvents(
  database: Database,
  topic: string,
  traces: readonly { tenantId: string; traceId: string }[],
): Promise<ParkedEvent[]> {
  const rows = await database.query<ParkedRow>(
    `WITH claimed AS (
       UPDATE parked_events SET parked_at = now()
       WHERE topic = $1 AND (tenant_id, trace_id) IN (SELECT * FROM unnest($2::uuid[], $3::uuid[]))
       RETURNING id, partition, log_offset, key, value, headers
     ) SELECT * FROM claimed ORDER BY partition, log_offset`,
    [topic, traces.map((trace) => trace.tenantId), traces.map((trace) => trace.traceId)],
  );
  return rows.map(toParkedEvent);
}

/** Takes away events parked before `before`, oldest first: to be put elsewhere in the same transaction. */
export async function takeStaleEvents(
  transaction: Sql,
  before: Date,
  limit: number,
): Promise<(ParkedEvent & { topic: string })[]> {
  const rows = await transaction.query<ParkedRow & { topic: string }>(
    `DELETE FROM parked_events WHERE id IN (
       SELECT id FROM parked_events WHERE parked_at < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
     ) RETURNING id, topic, partition, log_offset, key, value, headers`,
    [before.toISOString(), limit],
  );
  return rows.map((row) => ({ ...toParkedEvent(row), topic: row.topic }));
}

export async function unparkEvents(database: Sql, events: readonly ParkedEvent[]): Promise<void> {
  await database.query('DELETE FROM parked_events WHERE id = ANY($1::bigint[])', [events.map((event) => event.id)]);
}

export async function anyParked(database: Database, topic: string): Promise<boolean> {
  return (await database.query('SELECT 1 FROM parked_events WHERE topic = $1 LIMIT 1', [topic])).length > 0;
}

/** How many events wait, counted no further than 100,000, so that it stays cheap. */
export async function countParked(database: Database): Promise<number> {
  const [counted] = await database.query<{ events: number }>(
    'SELECT count(*) AS events FROM (SELECT 1 FROM parked_events LIMIT 100000) AS waiting',
  );
  return counted?.events ?? 0;
}

function toParkedEvent({ id, partition, log_offset: offset, key, value, headers }: ParkedRow): ParkedEvent {
  return { id, record: { partition, offset, key: key.toString(), value, headers } };
}
