import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import { readTenantId, readTraceId } from '../run-event/run-event.ts';

/** A stored event whose trace location is not known yet. */
interface DeferredEvent {
  readonly id: number;
  readonly record: LogRecord;
}

interface DeferredRow {
  readonly id: number;
  readonly partition: number;
  readonly log_offset: number;
  readonly version: string;
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: Record<string, string>;
}

/** Limits of one statement. Values are sent as hexadecimal text, which is twice as long. */
const maxStatementEvents = 1_000;
const maxStatementBytes = 8 * 1024 * 1024;

/** Stores events whose trace location is not known yet. Resolves when they are durable. */
export async function deferEvents(database: Database, topic: string, records: readonly LogRecord[]): Promise<void> {
  await database.transaction(async (transaction) => {
    for (const chunk of splitIntoChunks(records)) {
      await transaction.query(
        `INSERT INTO deferred_events (topic, partition, log_offset, version, tenant_id, trace_id, key, value, headers)
         SELECT $1, partition, log_offset, version, tenant_id, trace_id, key, value, headers::jsonb
         FROM unnest($2::int[], $3::bigint[], $4::numeric[], $5::uuid[], $6::uuid[], $7::bytea[], $8::bytea[], $9::text[])
           AS events (partition, log_offset, version, tenant_id, trace_id, key, value, headers)
         ORDER BY partition, log_offset, version ON CONFLICT DO NOTHING`,
        [
          topic,
          chunk.map(({ partition }) => partition),
          chunk.map(({ offset }) => offset),
          chunk.map(({ version }) => String(version)),
          chunk.map(({ value }) => readTenantId(value)),
          chunk.map(({ value }) => readTraceId(value)),
          chunk.map(({ key }) => Buffer.from(key)),
          chunk.map(({ value }) => value),
          chunk.map(({ headers }) => JSON.stringify(headers)),
        ],
      );
    }
  });
}

/** Splits `records` into chunks that observe the limits of one statement. */
function* splitIntoChunks(records: readonly LogRecord[]): Generator<readonly LogRecord[]> {
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

/**
 * Returns the deferred events of `traces`, in log order, and renews their time so that {@link deleteExpiredEvents} skips
 * them until {@link releaseEvents} deletes them. Each event is therefore either stored or sent to the dead-letter
 * queue, never both.
 */
export async function claimDeferredEvents(
  database: Database,
  topic: string,
  traces: readonly { tenantId: string; traceId: string }[],
): Promise<DeferredEvent[]> {
  const rows = await database.query<DeferredRow>(
    `WITH claimed AS (
       UPDATE deferred_events SET deferred_at = now()
       WHERE topic = $1 AND (tenant_id, trace_id) IN (SELECT * FROM unnest($2::uuid[], $3::uuid[]))
       RETURNING id, partition, log_offset, version::text, key, value, headers
     ) SELECT * FROM claimed ORDER BY partition, log_offset, version`,
    [topic, traces.map((trace) => trace.tenantId), traces.map((trace) => trace.traceId)],
  );
  return rows.map(toDeferredEvent);
}

/**
 * Deletes up to `limit` events that were deferred before `before`, oldest first, and returns them. The caller stores
 * them in the same transaction.
 */
export async function deleteExpiredEvents(
  transaction: Sql,
  before: Date,
  limit: number,
): Promise<(DeferredEvent & { topic: string })[]> {
  const rows = await transaction.query<DeferredRow & { topic: string }>(
    `DELETE FROM deferred_events WHERE id IN (
       SELECT id FROM deferred_events WHERE deferred_at < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
     ) RETURNING id, topic, partition, log_offset, version::text, key, value, headers`,
    [before.toISOString(), limit],
  );
  return rows.map((row) => ({ ...toDeferredEvent(row), topic: row.topic }));
}

/** Deletes deferred events that have now been stored. */
export async function releaseEvents(database: Sql, events: readonly DeferredEvent[]): Promise<void> {
  await database.query('DELETE FROM deferred_events WHERE id = ANY($1::bigint[])', [events.map((event) => event.id)]);
}

/** Returns whether any event of `topic` is deferred. */
export async function hasDeferredEvents(database: Database, topic: string): Promise<boolean> {
  return (await database.query('SELECT 1 FROM deferred_events WHERE topic = $1 LIMIT 1', [topic])).length > 0;
}

/** Returns the number of deferred events. Counts at most 100,000, to keep the query cheap. */
export async function countDeferredEvents(database: Database): Promise<number> {
  const [counted] = await database.query<{ events: number }>(
    'SELECT count(*) AS events FROM (SELECT 1 FROM deferred_events LIMIT 100000) AS waiting',
  );
  return counted?.events ?? 0;
}

function toDeferredEvent({ id, partition, log_offset: offset, version, ...row }: DeferredRow): DeferredEvent {
  const { key, value, headers } = row;
  return { id, record: { partition, offset, version: BigInt(version), key: key.toString(), value, headers } };
}
