import type { Sql } from '../../postgres/pool.ts';
import type { LogRecord } from '../event-log.ts';

export interface DeadLetterToStore {
  readonly topic: string;
  readonly record: LogRecord;
  readonly reason: string;
  /** Step that refused the record. */
  readonly step: string;
}

/**
 * Stores a record in the dead-letter queue with its original bytes and headers. Repeats of the same offset are stored once.
 */
export async function insertDeadLetter(database: Sql, deadLetter: DeadLetterToStore): Promise<void> {
  const { topic, record, reason, step } = deadLetter;
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
