import type pg from 'pg';
import type { QueryOptions, Sql } from './database.ts';
import { leavesConnectionUsable, toStatementError } from './database-error.ts';

/** Postgres stops a statement at its timeout; the client waits this much longer for the error of the server. */
const serverErrorGraceMs = 2_000;

/** One connection that is checked out of the pool. Tracks whether it can be returned to the pool. */
export class Connection {
  readonly #client: pg.PoolClient;
  readonly #onError = () => {
    this.#broken = true;
  };
  #broken = false;

  constructor(client: pg.PoolClient) {
    this.#client = client;
    // The connection may also break between statements; without a listener, the error would crash the process.
    client.on('error', this.#onError);
  }

  get broken(): boolean {
    return this.#broken;
  }

  /** Closes the connection instead of returning it to the pool. */
  discard(): void {
    this.#broken = true;
  }

  /** Returns the connection to the pool; a broken one is closed. */
  release(): void {
    this.#client.off('error', this.#onError);
    this.#client.release(this.#broken);
  }

  async send(
    sql: string,
    timeoutMs: number,
    params?: readonly unknown[],
    options?: QueryOptions,
  ): Promise<pg.QueryResult> {
    const statement: pg.QueryConfig & { query_timeout: number } = {
      text: sql,
      ...(params === undefined ? {} : { values: [...params] }),
      ...(options?.name === undefined ? {} : { name: options.name }),
      query_timeout: timeoutMs + serverErrorGraceMs,
    };
    try {
      return await this.#client.query(statement);
    } catch (raw) {
      if (!leavesConnectionUsable(raw)) this.#broken = true;
      throw toStatementError(raw);
    }
  }
}

/** Implements {@link Sql} with a function that sends one statement. */
export function createSql(
  send: (sql: string, params?: readonly unknown[], options?: QueryOptions) => Promise<pg.QueryResult>,
): Sql {
  return {
    query: async <Row>(sql: string, params?: readonly unknown[], options?: QueryOptions) =>
      (await send(sql, params, options)).rows as Row[],
    execute: async (sql, params, options) => (await send(sql, params, options)).rowCount ?? 0,
  };
}
