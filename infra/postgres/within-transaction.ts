import type { Database, Sql } from './database.ts';

/** Runs `work` in the transaction `sql`, or in a new transaction if `sql` is a database. */
export function withinTransaction<Result>(sql: Database | Sql, work: (tx: Sql) => Promise<Result>): Promise<Result> {
  return 'transaction' in sql ? sql.transaction(work) : work(sql);
}
