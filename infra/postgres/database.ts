/**
 * The database client. One adapter: Postgres through `pg` ({@link openDatabase} in `pool.ts`).
 *
 * Results: `int8` is a number if it is a safe integer, otherwise text; `timestamptz` is text like
 * `2026-01-02T03:04:05.123456Z` (a `Date` would lose microseconds); `date`, `timestamp` and `numeric` are text; `json`
 * and `jsonb` are parsed; `bytea` is a Buffer; arrays are arrays; other types are as in `pg`. Parameters: times as text
 * in the same format, arrays as arrays (`= ANY ($1)`), objects as JSON, bytes as a Buffer.
 *
 * Every call throws only RunlakeErrors: DATABASE_UNAVAILABLE (transient), ACCESS_DENIED_BY_STORE,
 * DATABASE_QUERY_FAILED. Use {@link getViolatedConstraint} of `database-error.ts` to detect a unique violation.
 */
export interface Sql {
  /** Returns the rows of a statement as objects by column name. */
  query<Row>(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<Row[]>;
  /** Returns the number of rows that a statement changed. */
  execute(sql: string, params?: readonly unknown[], options?: QueryOptions): Promise<number>;
}

export interface QueryOptions {
  /** Name of a prepared statement, for statements of hot paths. Each name must always have the same SQL. */
  readonly name?: string;
}

export interface TransactionOptions {
  /** Timeout of each statement of the transaction. Default: the timeout of the client. */
  readonly timeoutMs?: number;
}

export interface Session extends Sql {
  /**
   * Runs `work` in a transaction: commits when `work` resolves; rolls back when it rejects, and rejects with the same
   * error. The isolation level is read committed. `tx` must not be used after `work` has settled.
   */
  transaction<Result>(work: (tx: Sql) => Promise<Result>, options?: TransactionOptions): Promise<Result>;
}

export interface Database extends Session {
  /**
   * Runs `work` on one connection, for locks that outlive a transaction: session-level advisory locks are released when
   * `work` settles. If the connection breaks, Postgres releases them, and every later statement of `work` fails.
   */
  session<Result>(work: (session: Session) => Promise<Result>): Promise<Result>;
  /** Resolves when Postgres has executed a query. */
  ping(): Promise<void>;
  /** Server version, for example `18.4`. */
  version(): Promise<string>;
  /** Waits for running statements, then closes all connections. */
  close(): Promise<void>;
}
