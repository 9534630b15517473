/**
 * The offsets that a process may assign.
 *
 * Invariant: offsets increase across processes, because they order the values of a run, and a reused offset would be
 * dropped as a duplicate. They begin at the current time in microseconds. The clock may have been set back, so
 *
 *   1. a process reserves offsets in Postgres before it assigns them;
 *   2. the next process begins after all reserved and all stored ones.
 */
import type { Database, Sql } from '../../postgres/pool.ts';

/** Number of offsets that a process reserves at once. Reserved offsets are skipped at the next start. */
const offsetsPerReservation = 10_000_000;

export class OffsetReservation {
  readonly #database: Sql;
  /** The first offset that is not reserved. */
  #until: number;
  #reserving: Promise<void> | undefined;

  private constructor(database: Sql, first: number) {
    this.#database = database;
    this.#until = first + offsetsPerReservation;
  }

  /** @returns the reservation and its first offset. @throws the errors of the database. */
  static async open(database: Database): Promise<{ reservation: OffsetReservation; firstOffset: number }> {
    // Only releases that reserved no offsets have left offsets beyond those. The tables may have millions of rows.
    const [stored] = await database.query<{ next: number }>(
      `SELECT CASE WHEN EXISTS (SELECT FROM in_process_log) THEN 0 ELSE (
         SELECT coalesce(max(log_offset) + 1, 0)
         FROM (SELECT max(log_offset) AS log_offset FROM deferred_events UNION ALL SELECT max(log_offset) FROM dead_letters) AS used
       ) END AS next`,
    );
    const firstOffset = await reserve(database, Math.max(Date.now() * 1_000, stored?.next ?? 0));
    return { reservation: new OffsetReservation(database, firstOffset), firstOffset };
  }

  /** Returns true if all offsets below `end` are reserved. */
  covers(end: number): boolean {
    return end <= this.#until;
  }

  /** Reserves more offsets. @throws the errors of the database. */
  extend(): Promise<void> {
    this.#reserving ??= reserve(this.#database, this.#until)
      .then((first) => {
        this.#until = first + offsetsPerReservation;
      })
      .finally(() => {
        this.#reserving = undefined;
      });
    return this.#reserving;
  }
}

/**
 * Reserves offsets from `from` on or, if another process has reserved these, after its last one.
 *
 * @returns the first reserved offset.
 */
async function reserve(database: Sql, from: number): Promise<number> {
  const [row] = await database.query<{ first: number }>(
    `INSERT INTO in_process_log AS log (reserved_until) VALUES ($1::bigint + $2::bigint)
     ON CONFLICT (id) DO UPDATE SET reserved_until = greatest(log.reserved_until, $1::bigint) + $2::bigint
     RETURNING reserved_until - $2::bigint AS first`,
    [from, offsetsPerReservation],
  );
  return row!.first;
}
