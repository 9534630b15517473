import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { ThreadTtl } from './create-thread.ts';
import { requireStorableJson, type Thread, type ThreadRow, threadColumns, toThread } from './thread.ts';

export interface ThreadChange {
  /** Merged with the stored metadata, key by key. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Null: the thread does not expire. */
  readonly ttl?: ThreadTtl | null;
}

/**
 * Changes the metadata and TTL of a thread. @throws THREAD_NOT_FOUND, INVALID_REQUEST if Postgres cannot store the metadata.
 */
export async function updateThread(
  database: Sql,
  deploymentId: string,
  threadId: string,
  { metadata = {}, ttl }: ThreadChange,
): Promise<Thread> {
  requireStorableJson(metadata, ['body', 'metadata']);
  const [row] = await database.query<ThreadRow>(
    `UPDATE agents.threads SET metadata = metadata || $3, updated_at = clock_timestamp(),
       ttl_minutes = CASE WHEN $4::boolean THEN $5::float8 ELSE ttl_minutes END,
       ttl_strategy = CASE WHEN $4::boolean THEN $6::text ELSE ttl_strategy END,
       expires_at = clock_timestamp() + CASE WHEN $4::boolean THEN $5::float8 ELSE ttl_minutes END * interval '1 minute'
     WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden RETURNING ${threadColumns}`,
    [deploymentId, threadId, metadata, ttl !== undefined, ttl?.minutes ?? null, ttl?.strategy ?? null],
  );
  if (row === undefined) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
  return toThread(row);
}
