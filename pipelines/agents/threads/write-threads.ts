import { v7 as uuidv7 } from 'uuid';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireStorableJson } from '../../../infra/json/json-value.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { createOrFind } from '../../../infra/postgres/database-error.ts';
import { resolveAssistant } from '../assistants/assistant.ts';
import { buildThreadKey, copyCheckpointsSql } from '../checkpoints/copy-checkpoints.ts';
import { requestDeletionTimeoutMs } from '../delete-agent-rows.ts';
import type { WorkerPool } from '../workers/front/worker-pool.ts';
import type { GraphThread } from '../workers/messages.ts';
import {
  findThread,
  readThread,
  type Thread,
  type ThreadHead,
  type ThreadRow,
  type ThreadTtl,
  threadColumns,
  toThread,
} from './thread.ts';

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

/**
 * Copies a thread with its state and checkpoints, but without its runs, to a new thread. Merges `metadata` into the
 * metadata of the copy, so that a user who copies the thread of another user has access to the copy.
 *
 * @returns the copy, and whether its checkpoints can be newer than its row, because a run of the thread has
 * started or its state is being updated.
 * @throws THREAD_TO_COPY_NOT_FOUND
 */
export async function copyThread(
  database: Database,
  deploymentId: string,
  threadId: string,
  metadata: Readonly<Record<string, unknown>> = {},
): Promise<{ readonly copy: Thread; readonly isDuringWrite: boolean }> {
  requireStorableJson(metadata, ['body', 'metadata']);
  const copyId = uuidv7();
  const keys = [threadId, copyId].map((id) => buildThreadKey(deploymentId, id));
  const copyInto = async (tx: Sql) => {
    const [row] = await tx.query<ThreadRow & { readonly is_during_write: boolean }>(
      copyThreadSql,
      [...keys, copyId, deploymentId, threadId, metadata],
      { name: 'agents_copy_thread' },
    );
    if (row === undefined) throw runlakeError('THREAD_TO_COPY_NOT_FOUND', { thread: threadId });
    const { is_during_write: isDuringWrite, ...thread } = row;
    return { copy: toThread(thread), isDuringWrite };
  };
  return createOrFind(
    () => database.transaction(copyInto, { timeoutMs: requestDeletionTimeoutMs }),
    async () => {
      const copy = await findThread(database, deploymentId, copyId);
      return copy && { copy, isDuringWrite: true };
    },
  );
}

/**
 * One statement, which sees one state of the thread without a lock. A long history takes minutes, and runs go on. The copy
 * names the graph and has the config of its state, not those of runs that have not started, which it does not get.
 */
const copyThreadSql = `
WITH ${copyCheckpointsSql},
waiting AS (
  SELECT queue_position, graph_before, config_before,
    jsonb_build_object('graph_id', graph_id, 'assistant_id', assistant_id) AS graph FROM agents.runs
  WHERE deployment_id = $4 AND thread_id = $5 AND status = 'pending' AND attempt = 0 AND queue_position > coalesce((
    SELECT max(queue_position) FROM agents.runs WHERE deployment_id = $4 AND thread_id = $5 AND attempt > 0 AND NOT removed
  ), 0)
),
before AS (
  SELECT (SELECT graph FROM waiting ORDER BY queue_position DESC LIMIT 1) AS newest_graph,
    (SELECT graph_before FROM waiting WHERE graph_before IS NOT NULL ORDER BY queue_position LIMIT 1) AS graph,
    (SELECT config_before FROM waiting WHERE config_before IS NOT NULL ORDER BY queue_position LIMIT 1) AS config
),
copy AS (
  INSERT INTO agents.threads (deployment_id, thread_id, status, rest_status, metadata, config, values, searchable_values,
    interrupts, error, ttl_strategy, ttl_minutes, expires_at)
  SELECT deployment_id, $3::uuid, rest_status, rest_status, CASE WHEN metadata @> newest_graph AND graph IS NOT NULL
      THEN metadata - '{graph_id,assistant_id}'::text[] || graph ELSE metadata END || $6::jsonb,
    coalesce(before.config, threads.config), values, searchable_values, interrupts, error,
    ttl_strategy, ttl_minutes, clock_timestamp() + ttl_minutes * interval '1 minute'
  FROM agents.threads, before WHERE deployment_id = $4 AND thread_id = $5 AND NOT hidden
  RETURNING ${threadColumns}
)
SELECT copy.*, EXISTS (
  SELECT FROM agents.runs WHERE deployment_id = $4 AND thread_id = $5 AND status IN ('pending', 'running') AND attempt > 0
  UNION ALL
  SELECT FROM agents.threads WHERE deployment_id = $4 AND thread_id = $5 AND write_token IS NOT NULL
) AS is_during_write
FROM copy`;

/** Dependencies of functions that send queries about a thread to a worker. */
export interface ThreadDeps {
  readonly database: Database;
  readonly deploymentId: string;
  readonly pool: Pick<WorkerPool, 'query'>;
  /** TTL of new threads that set none. Default: no TTL. */
  readonly threadTtl?: ThreadTtl | undefined;
}

/**
 * Returns the description of a thread that a worker query needs: the graph that its metadata names, and the config of
 * its last run or, if the thread stores no config, that of its assistant. Returns undefined if the thread has no graph
 * yet.
 */
export async function resolveGraphThread(
  { database, deploymentId }: ThreadDeps,
  { thread_id: threadId, metadata, config: stored }: Pick<ThreadHead, 'thread_id' | 'metadata' | 'config'>,
): Promise<GraphThread | undefined> {
  const { graph_id: graphId, assistant_id: assistantId } = metadata;
  if (typeof graphId !== 'string') return undefined;
  const config =
    Object.keys(stored).length > 0
      ? stored
      : await readAssistantConfig(typeof assistantId === 'string' ? assistantId : graphId);
  return { deploymentId, threadId, graphId, config };

  /**
   * Returns an empty config if the assistant was deleted or belongs to another graph, which is possible because clients
   * can write the metadata.
   */
  async function readAssistantConfig(idOrGraphId: string): Promise<object> {
    try {
      const assistant = await resolveAssistant(database, deploymentId, idOrGraphId);
      return assistant.graph_id === graphId ? assistant.config : {};
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'ASSISTANT_NOT_FOUND') return {};
      throw error;
    }
  }
}

export interface ThreadChange {
  /** Merged with the stored metadata, key by key. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** New TTL. If null, the thread does not expire. */
  readonly ttl?: ThreadTtl | null;
}

/**
 * Changes the metadata and TTL of a thread. @throws THREAD_NOT_FOUND, INVALID_REQUEST if Postgres cannot store the
 * metadata.
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
