import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import { tenantIdOf, traceIdOf } from '../run-event/run-event.ts';

/** A stored event whose trace location is not known yet. */
interface DeferredEvent {
  readonly id: number;
  readonly record: LogRecord;
}

interface DeferredRow {
  readonly id: number;
  readonly partition: number;
  readonly log_offset: number;
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: Record<string, string>;
}

/** Limits of one statement. Values are sent as hexadecimal text, which doubles their size. */
const maxStatementEvents = 1_000;
const maxStatementBytes = 8 * 1024 * 1024;

/** Source of deferred events. */
interface DeferredFrom {
  readonly topic: string;
  /** Token salt of a replay of older events; empty otherwise. */
  readonly salt: string;
}

/**
 * Stores events whose trace location is not known yet. Resolves when they are durable.
 *
 * Each offset is deferred at most once per salt, even after its event was released. Otherwise a process that lost its
 * partition and resumes late would defer the event again, and the sink would insert it a second time, after newer
 * events. A replay has its own salt.
 */
export async function deferEvents(
  database: Database,
  { topic, salt }: DeferredFrom,
  records: readonly LogRecord[],
): Promise<void> {
  await database.transaction(async (transaction) => {
    for (const chunk of chunksOf(records)) {
      await transaction.query(
        `WITH events AS (
           SELECT * FROM unnest($2::int[], $3::bigint[], $4::uuid[], $5::uuid[], $6::bytea[], $7::bytea[], $8::text[])
             AS e (partition, log_offset, tenant_id, trace_id, key, value, headers)
         ), fresh AS (
           INSERT INTO deferred_offsets (topic, partition, log_offset, salt)
           SELECT $1, partition, log_offset, $9 FROM events ORDER BY partition, log_offset
           ON CONFLICT DO NOTHING RETURNING partition, log_offset
         )
         INSERT INTO deferred_events (topic, partition, log_offset, tenant_id, trace_id, key, value, headers)
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

/** Splits `records` by the limits of one statement. */
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

/** Deletes the offsets deferred before `before`. Choose a time longer ago than any process can be suspended. */
export async function deleteDeferredOffsets(database: Sql, before: Date): Promise<void> {
  await database.query('DELETE FROM deferred_offsets WHERE deferred_at < $1', [before.toISOString()]);
}

/**
 * Returns the deferred events of `traces`, in log order, and renews their time so that {@link takeExpiredEvents} skips
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
       RETURNING id, partition, log_offset, key, value, headers
     ) SELECT * FROM claimed ORDER BY partition, log_offset`,
    [topic, traces.map((trace) => trace.tenantId), traces.map((trace) => trace.traceId)],
  );
  return rows.map(toDeferredEvent);
}

/**
 * Deletes up to `limit` events deferred before `before`, oldest first, and returns them. The caller stores them in the
 * same transaction.
 */
export async function takeExpiredEvents(
  transaction: Sql,
  before: Date,
  limit: number,
): Promise<(DeferredEvent & { topic: string })[]> {
  const rows = await transaction.query<DeferredRow & { topic: string }>(
    `DELETE FROM deferred_events WHERE id IN (
       SELECT id FROM deferred_events WHERE deferred_at < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
     ) RETURNING id, topic, partition, log_offset, key, value, headers`,
    [before.toISOString(), limit],
  );
  return rows.map((row) => ({ ...toDeferredEvent(row), topic: row.topic }));
}

/** Deletes deferred events that are stored now. */
export async function releaseEvents(database: Sql, events: readonly DeferredEvent[]): Promise<void> {
  await database.query('DELETE FROM deferred_events WHERE id = ANY($1::bigint[])', [events.map((event) => event.id)]);
}

async function hasDeferred(database: Database, topic: string): Promise<boolean> {
  return (await database.query('SELECT 1 FROM deferred_events WHERE topic = $1 LIMIT 1', [topic])).length > 0;
}

/** Number of deferred events; counts at most 100,000 to stay cheap. */
export async function countDeferred(database: Database): Promise<number> {
  const [counted] = await database.query<{ events: number }>(
    'SELECT count(*) AS events FROM (SELECT 1 FROM deferred_events LIMIT 100000) AS waiting',
  );
  return counted?.events ?? 0;
}

function toDeferredEvent({ id, partition, log_offset: offset, key, value, headers }: DeferredRow): DeferredEvent {
  return { id, record: { partition, offset, key: key.toString(), value, headers } };
}

/**
 * Remembers which topics have deferred events. Most have none, so this saves a query per batch.
 * Partitions are handled concurrently: an answer is discarded if another partition deferred an event while the query ran.
 */
export class DeferredTopics {
  readonly #database: Database;
  readonly #known = new Map<string, boolean>();
  readonly #changes = new Map<string, number>();

  constructor(database: Database) {
    this.#database = database;
  }

  /** Whether `topic` has deferred events; queries Postgres unless the answer is known. */
  async has(topic: string): Promise<boolean> {
    return this.#known.get(topic) ?? this.refresh(topic);
  }

  async refresh(topic: string): Promise<boolean> {
    const before = this.#changes.get(topic);
    const found = await hasDeferred(this.#database, topic);
    if (this.#changes.get(topic) === before) this.#known.set(topic, found);
    return found;
  }

  /** Call this after deferring events: a query that ran before or meanwhile may not have seen them. */
  add(topic: string): void {
    this.#change(topic);
    this.#known.set(topic, true);
  }

  /** Invalidates the cached state of `topic`: another process may have deferred events of it. */
  forget(topic: string): void {
    this.#change(topic);
    this.#known.delete(topic);
  }

  #change(topic: string): void {
    this.#changes.set(topic, (this.#changes.get(topic) ?? 0) + 1);
  }
}
