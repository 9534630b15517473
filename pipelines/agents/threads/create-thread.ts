import { v7 as uuidv7 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { readThread } from './read-thread.ts';
import { requireStorableJson } from './storable-json.ts';
import type { Thread, TtlStrategy } from './thread.ts';
import { type ThreadRow, threadColumns, toThread } from './thread-row.ts';

export interface ThreadTtl {
  readonly minutes: number;
  readonly strategy: TtlStrategy;
}

export interface NewThread {
  /** Default: a new id. */
  readonly threadId?: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly ifExists: 'raise' | 'do_nothing';
  readonly ttl?: ThreadTtl;
}

/**
 * Creates a thread. With `ifExists: 'do_nothing'` it returns an existing thread unchanged.
 *
 * @throws THREAD_EXISTS; THREAD_NOT_FOUND if the id belongs to a hidden thread; INVALID_REQUEST if Postgres cannot
 *   store the metadata.
 */
export async function createThread(
  database: Sql,
  deploymentId: string,
  { threadId = uuidv7(), metadata, ifExists, ttl }: NewThread,
): Promise<Thread> {
  requireStorableJson(metadata, ['body', 'metadata']);
  const [row] = await database.query<ThreadRow>(
    `INSERT INTO agents.threads (deployment_id, thread_id, metadata, ttl_minutes, ttl_strategy, expires_at)
     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $4 * interval '1 minute')
     ON CONFLICT DO NOTHING RETURNING ${threadColumns}`,
    [deploymentId, threadId, metadata, ttl?.minutes ?? null, ttl?.strategy ?? null],
    { name: 'agents_create_thread' },
  );
  if (row !== undefined) return toThread(row);
  if (ifExists === 'raise') throw runlakeError('THREAD_EXISTS', { thread: threadId });
  return readThread(database, deploymentId, threadId);
}
