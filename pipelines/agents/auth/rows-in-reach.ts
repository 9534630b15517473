import type { Database } from '../../../infra/postgres/database.ts';
import type { RequiredMetadata } from './access-filter.ts';

const tables = {
  threads: ['agents.threads', 'thread_id'],
  assistants: ['agents.assistants', 'assistant_id'],
  crons: ['agents.crons', 'cron_id'],
} as const;

export type ReachedKind = keyof typeof tables;

/** Reads what access rules need of the rows of a deployment. */
export class RowsInReach {
  readonly #database: Database;
  readonly #deploymentId: string;

  constructor(database: Database, deploymentId: string) {
    this.#database = database;
    this.#deploymentId = deploymentId;
  }

  /** Whether the row exists and its metadata contains `required`. */
  async holds(kind: ReachedKind, id: string, required: RequiredMetadata): Promise<boolean> {
    const [table, column] = tables[kind];
    const rows = await this.#database.query(
      `SELECT FROM ${table} WHERE deployment_id = $1 AND ${column} = $2 AND metadata @> $3`,
      [this.#deploymentId, id, required],
    );
    return rows.length > 0;
  }

  /**
   * The assistant or graph that the metadata of a thread names, which runs the thread next. Users can write metadata,
   * so the caller must check access to this assistant as to any other.
   */
  async assistantOfThread(threadId: string): Promise<string | undefined> {
    const [row] = await this.#database.query<{ assistant: string | null }>(
      `SELECT coalesce(metadata->>'assistant_id', metadata->>'graph_id') AS assistant FROM agents.threads
       WHERE deployment_id = $1 AND thread_id = $2`,
      [this.#deploymentId, threadId],
    );
    return row?.assistant ?? undefined;
  }

  /** Whether the metadata of all threads that the assistant ran on contains `required`. */
  async ownsThreadsOf(assistantId: string, required: RequiredMetadata): Promise<boolean> {
    const others = await this.#database.query(
      `SELECT FROM agents.threads thread WHERE deployment_id = $1 AND NOT metadata @> $3
         AND (metadata @> $4 OR EXISTS (SELECT FROM agents.runs run WHERE run.deployment_id = $1
           AND run.assistant_id = $2 AND run.thread_id = thread.thread_id)) LIMIT 1`,
      [this.#deploymentId, assistantId, required, { assistant_id: assistantId }],
    );
    return others.length === 0;
  }
}
