import pg from 'pg';
import { onTestFinished } from 'vitest';
import { until } from '../infra/until.ts';
import { deadlineMs } from './pipeline.ts';

/** The row of a thread, locked: whoever wants to write a run of it stops there, in the middle of its transaction. */
export class HeldRow {
  readonly #client: pg.Client;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  /** Let go with the test, if not before. */
  static async of(databaseUrl: string, threadId: string): Promise<HeldRow> {
    const client = new pg.Client(databaseUrl);
    await client.connect();
    const held = new HeldRow(client);
    onTestFinished(() => held.release());
    await client.query('BEGIN');
    await client.query('SELECT FROM agents.threads WHERE thread_id = $1 FOR UPDATE', [threadId]);
    return held;
  }

  /** Until somebody who holds a row of `agents.<table>` waits for this one. */
  async untilWantedBy(table: string): Promise<void> {
    const waiting = `SELECT FROM pg_stat_activity JOIN pg_locks USING (pid)
      WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)) AND relation = 'agents.${table}'::regclass`;
    await until(
      'the row to be wanted',
      async () => ((await this.#client.query(waiting)).rowCount ?? 0) > 0,
      deadlineMs,
    );
  }

  async release(): Promise<void> {
    await this.#client.end().catch(() => undefined);
  }
}
