/**
 * The dead-letter queue of the in-process log. It is the table `dead_letters`. Ids have the form `<topic>/<id of the
 * row>`.
 */
import type { Database, Sql } from '../../postgres/pool.ts';
import {
  type DeadLetterHead,
  type DeadLetterQueue,
  type DeadLetterRecord,
  type LogRecord,
  maxCountedDeadLetters,
  versionHeader,
} from '../event-log.ts';

interface HeadRow {
  readonly id: number;
  readonly topic: string;
  readonly partition: number;
  readonly log_offset: number;
  readonly key: Buffer;
  readonly size_bytes: number;
  readonly reason: string;
  readonly step: string;
  readonly dead_at_ms: number;
}

const headColumns = `id, topic, partition, log_offset, key, octet_length(value) AS size_bytes, reason, step,
  floor(extract(epoch FROM dead_at) * 1000)::bigint AS dead_at_ms`;

const idPattern = /^([\w.-]+)\/(\d{1,15})$/;

/** Opens the dead-letter queue for reading. */
export function openPostgresDeadLetterQueue(database: Database): DeadLetterQueue {
  const queue: DeadLetterQueue = {
    async list({ topics, step, sinceMs, untilMs }, limit) {
      const rows = await database.query<HeadRow>(
        `SELECT ${headColumns} FROM dead_letters
         WHERE topic = ANY ($1::text[]) AND ($2::text IS NULL OR step = $2)
           AND ($3::float8 IS NULL OR dead_at >= to_timestamp($3 / 1000))
           AND ($4::float8 IS NULL OR dead_at < to_timestamp(($4 + 1) / 1000))
         ORDER BY dead_at DESC, id DESC LIMIT $5`,
        [topics.map(({ name }) => name), step ?? null, sinceMs ?? null, untilMs ?? null, limit],
      );
      return rows.map(toHead);
    },
    async countUnreplayed({ name }) {
      const [row] = await database.query<{ records: number }>(
        `SELECT count(*) AS records FROM (
           SELECT FROM dead_letters AS d WHERE topic = $1 AND NOT EXISTS (
             SELECT FROM dead_letter_replays AS r WHERE r.dead_letter_id = d.topic || '/' || d.id AND r.replayed_at IS NOT NULL
           ) LIMIT $2
         ) AS counted`,
        [name, maxCountedDeadLetters],
      );
      return row?.records ?? 0;
    },
    async find(id) {
      const [, topic, number] = idPattern.exec(id) ?? [];
      if (topic === undefined) return undefined;
      const [row] = await database.query<HeadRow & Pick<DeadLetterRecord, 'value' | 'headers'>>(
        `SELECT ${headColumns}, value, headers FROM dead_letters WHERE id = $1 AND topic = $2`,
        [number, topic],
      );
      return row && { ...toHead(row), value: row.value, headers: row.headers };
    },
    async read(ids, use) {
      for (const id of new Set(ids)) {
        const record = await queue.find(id);
        if (record !== undefined) await use(record);
      }
    },
    close: async () => undefined,
  };
  return queue;
}

function toHead(row: HeadRow): DeadLetterHead {
  return {
    id: `${row.topic}/${row.id}`,
    topic: row.topic,
    partition: row.partition,
    offset: row.log_offset,
    key: row.key.toString(),
    sizeBytes: row.size_bytes,
    reason: row.reason,
    step: row.step,
    deadLetteredAtMs: Number(row.dead_at_ms),
  };
}

/**
 * Stores a record with its original bytes and headers. Its version is stored as a header, so that a replay does not
 * change its order. `topic` is the name of the record's topic. Repeated records with the same offset are stored once.
 */
export async function insertDeadLetter(
  database: Sql,
  topic: string,
  { partition, offset, key, value, headers, version }: LogRecord,
  reason: string,
  step: string,
): Promise<void> {
  await database.query(
    `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`,
    [
      topic,
      partition,
      offset,
      Buffer.from(key),
      value,
      { ...headers, [versionHeader]: String(version) },
      reason.slice(0, 2_000),
      step,
    ],
  );
}

/** Records that the event of a dead-letter record was published again. */
export async function markReplayed(database: Sql, deadLetterId: string): Promise<void> {
  await database.execute('UPDATE dead_letters SET replayed_at = clock_timestamp() WHERE id = $1', [
    parseRowId(deadLetterId),
  ]);
}

/** Returns the time of the last replay in ISO 8601. Returns undefined if the record was never replayed. */
export async function findLastReplay(database: Sql, deadLetterId: string): Promise<string | undefined> {
  const [row] = await database.query<{ replayed_at: string | null }>(
    'SELECT replayed_at FROM dead_letters WHERE id = $1',
    [parseRowId(deadLetterId)],
  );
  return row?.replayed_at ?? undefined;
}

function parseRowId(deadLetterId: string): string {
  return deadLetterId.slice(deadLetterId.lastIndexOf('/') + 1);
}
