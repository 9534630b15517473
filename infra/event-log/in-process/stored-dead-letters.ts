import type { Database } from '../../postgres/pool.ts';
import { type DeadLetter, type DeadLetterHead, type DeadLetters, maxCounted } from '../dead-letters.ts';

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

/** The dead-letter queue of the in-process log: the table `dead_letters`. Ids are `<topic>/<id of the row>`. */
export function storedDeadLetters(database: Database): DeadLetters {
  return {
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
    async count({ name }) {
      const [row] = await database.query<{ records: number }>(
        'SELECT count(*) AS records FROM (SELECT FROM dead_letters WHERE topic = $1 LIMIT $2) AS counted',
        [name, maxCounted],
      );
      return row?.records ?? 0;
    },
    async find(id) {
      const [, topic, number] = idPattern.exec(id) ?? [];
      if (topic === undefined) return undefined;
      const [row] = await database.query<HeadRow & Pick<DeadLetter, 'value' | 'headers'>>(
        `SELECT ${headColumns}, value, headers FROM dead_letters WHERE id = $1 AND topic = $2`,
        [number, topic],
      );
      return row && { ...toHead(row), value: row.value, headers: row.headers };
    },
    close: async () => undefined,
  };
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
    deadAtMs: Number(row.dead_at_ms),
  };
}
