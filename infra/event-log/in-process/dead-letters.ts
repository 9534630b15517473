import type { Sql } from '../../postgres/pool.ts';
import type { LogRecord } from '../event-log.ts';

export interface DeadLetter {
  readonly topic: string;
  readonly record: LogRecord;
  readonly reason: string;
  /** Where on the path it was refused. */
  readonly step: string;
}

/** Keeps an event that cannot be stored, with its original bytes and headers. Repeats of the same offset are one letter. */
export async function insertDeadLetter(database: Sql, letter: DeadLetter): Promise<void> {
  const { topic, record, reason, step } = letter;
  await database.query(
    `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`,
    [
      topic,
      record.partition,
      record.offset,
      Buffer.from(record.key),
      record.value,
      record.headers,
      reason.slice(0, 2_000),
      step,
    ],
  );
}
