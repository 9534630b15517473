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

/** Limits of one statement that writes events. Values are sent as hexadecimal text, which is twice as long. */
const maxStatementEvents = 1_000;
const maxStatementBytes = 8 * 1024 * 1024;
/** Limits of one statement that reads events, whose values are sent in the same way. It reads at least one event. */
const maxSliceEvents = 10_000;
const maxSliceBytes = 16 * 1024 * 1024;

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
 * SQL: the first rows of `candidates` that fit into a slice of `maxEvents` and {@link maxSliceBytes}, but at least one,
 * and the number of candidates as `found`. Candidates have `id`, `bytes` and a unique position in `ordering`. Postgres
 * knows the length of a value without reading it.
 */
const buildSliceSql = (candidates: string, ordering: string, maxEvents: number) => `
  SELECT id, found FROM (
    SELECT id, count(*) OVER () AS found, row_number() OVER slice AS ordinal, sum(bytes) OVER slice AS total
    FROM (${candidates}) AS candidates WINDOW slice AS (ORDER BY ${ordering} ROWS UNBOUNDED PRECEDING)
  ) AS counted WHERE ordinal = 1 OR (ordinal <= ${maxEvents} AND total <= ${maxSliceBytes})`;

interface ClaimedEvents {
  /** In the order of their versions. Events of the same trace that are not claimed yet have higher versions. */
  readonly events: readonly DeferredEvent[];
  /** Whether more events of the traces are deferred. */
  readonly hasMore: boolean;
}

/**
 * Returns the first deferred events of `traces` that fit into a slice of bounded size; the next call returns the next
 * ones if {@link releaseEvents} has deleted these. Renews their time so that {@link deleteExpiredEvents} skips them
 * until then. Each event is therefore either stored or sent to the dead-letter queue, never both.
 */
export async function claimDeferredEvents(
  database: Database,
  topic: string,
  traces: readonly { tenantId: string; traceId: string }[],
): Promise<ClaimedEvents> {
  if (traces.length === 0) return { events: [], hasMore: false };
  // Each trace is read in the order of the index, so that Postgres reads only the candidates of a slice. The lock waits
  // for other sinks that release events of the trace, and skips what they have released.
  const candidates = `
    SELECT id, bytes, ordinality, version
    FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS traces (tenant_id, trace_id, ordinality), LATERAL (
      SELECT id, version, octet_length(value) AS bytes FROM deferred_events AS event
      WHERE topic = $1 AND event.tenant_id = traces.tenant_id AND event.trace_id = traces.trace_id
      ORDER BY version, id LIMIT ${maxSliceEvents + 1} FOR UPDATE
    ) AS events LIMIT ${maxSliceEvents + 1}`;
  const rows = await database.query<DeferredRow & { found: number }>(
    `WITH slice AS (${buildSliceSql(candidates, 'ordinality, version, id', maxSliceEvents)}), claimed AS (
       UPDATE deferred_events SET deferred_at = now() FROM slice WHERE deferred_events.id = slice.id
       RETURNING deferred_events.id, partition, log_offset, version, key, value, headers, found
     ) SELECT id, partition, log_offset, version::text, key, value, headers, found FROM claimed
       ORDER BY claimed.version, id`,
    [topic, traces.map((trace) => trace.tenantId), traces.map((trace) => trace.traceId)],
  );
  return { events: rows.map(toDeferredEvent), hasMore: (rows[0]?.found ?? 0) > rows.length };
}

/**
 * Deletes up to `limit` events that were deferred before `before`, oldest first, and returns them. They fit into a
 * slice of bounded size; none is left if none is returned. The caller stores them in the same transaction.
 */
export async function deleteExpiredEvents(
  transaction: Sql,
  before: Date,
  limit: number,
): Promise<(DeferredEvent & { topic: string })[]> {
  const candidates = `SELECT id, octet_length(value) AS bytes FROM deferred_events
    WHERE deferred_at < $1 ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED`;
  const rows = await transaction.query<DeferredRow & { topic: string }>(
    `DELETE FROM deferred_events WHERE id IN (SELECT id FROM (${buildSliceSql(candidates, 'id', limit)}) AS slice)
     RETURNING id, topic, partition, log_offset, version::text, key, value, headers`,
    [before.toISOString()],
  );
  return rows.map((row) => ({ ...toDeferredEvent(row), topic: row.topic }));
}

/** Deletes deferred events that have now been stored. */
export async function releaseEvents(database: Sql, events: readonly DeferredEvent[]): Promise<void> {
  if (events.length === 0) return;
  await database.query('DELETE FROM deferred_events WHERE id = ANY($1::bigint[])', [events.map((event) => event.id)]);
}

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
