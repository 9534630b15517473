import pg from 'pg';
import { onTestFinished } from 'vitest';
import { until } from '../infra/until.ts';
import { deadlineMs } from './pipeline.ts';

/**
 * A lock on the row of a thread: a process that writes a graph run of this thread blocks in the middle of its
 * transaction.
 */
export class LockedThreadRow {
  readonly #client: pg.Client;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  /** Takes the lock; it is released at the end of the test at the latest. */
  static async of(databaseUrl: string, threadId: string): Promise<LockedThreadRow> {
    const client = new pg.Client(databaseUrl);
    await client.connect();
    const held = new LockedThreadRow(client);
    onTestFinished(() => held.release());
    await client.query('BEGIN');
    await client.query('SELECT FROM agents.threads WHERE thread_id = $1 FOR UPDATE', [threadId]);
    return held;
  }

  /** Waits until a session that holds a lock on `agents.<table>` waits for this row. */
  async untilWantedBy(table: string): Promise<void> {
    const waiting = `SELECT FROM pg_stat_activity JOIN pg_locks USING (pid)
      WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)) AND relation = 'agents.${table}'::regclass`;
    await until(
      'another session to wait for the row',
      async () => ((await this.#client.query(waiting)).rowCount ?? 0) > 0,
      deadlineMs,
    );
  }

  async release(): Promise<void> {
    await this.#client.end().catch(() => undefined);
  }
}
