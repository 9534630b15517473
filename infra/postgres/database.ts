/**
 * The port of the database. One adapter: Postgres through `pg` ({@link openDatabase} in `pool.ts`).
 *
 * How values come back: `int8` as a number where it is a safe integer and else as text, `timestamptz` as
 * `2026-01-02T03:04:05.123456Z` (all six digits, which a `Date` would lose), `date`, `timestamp` and `numeric` as text,
 * `json` and `jsonb` parsed, `bytea` as a Buffer, arrays as arrays, the rest as `pg` has it.
 * How parameters go in: times as such text, arrays as arrays (`= ANY ($1)`), objects as JSON, bytes as a Buffer.
 *
 * Every call throws only errors of the catalogue: DATABASE_UNAVAILABLE (transient), ACCESS_DENIED_BY_STORE,
 * DATABASE_QUERY_FAILED; a unique violation is told by {@link violatedConstraint} of `faults.ts`.
 */
export interface Sql {
  /** Rows of a statement, as objects by column name. */
  query<Row>(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<Row[]>;
  /** The number of rows that a statement changed. */
  execute(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<number>;
}

export interface QueryOptions {
  /** Names a prepared statement, kept on each connection: worth it for what runs with every request. One SQL text a name. */
  readonly name?: string;
}

export interface TransactionOptions {
  /** Longest time of each statement in it. Default: that of the database. */
  readonly timeoutMs?: number;
}

export interface Database extends Sql {
  /**
   * Commits what `work` did through `tx` when it resolves, and undoes it when it rejects, with that same error.
   * Isolation is read committed. `tx` must not be used after `work` is done.
   */
  transaction<Result>(work: (tx: Sql) => Promise<Result>, options?: TransactionOptions): Promise<Result>;
  /** Resolves when Postgres answers. */
  ping(): Promise<void>;
  /** Such as `18.4`. */
  version(): Promise<string>;
  /** Waits for statements under way, then ends all connections. */
  close(): Promise<void>;
}
