/**
 * Types of a thread and its state, with the field names of the API. Source: LangGraph Platform API, Thread and
 * ThreadState.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { queryPageWithinLimit } from '../../../infra/postgres/page-within.ts';
import { toJsonbText } from '../checkpoints/stored-tuples.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import type { CheckpointReference } from '../runs/run.ts';

export const threadStatuses = ['idle', 'busy', 'interrupted', 'error'] as const;
export type ThreadStatus = (typeof threadStatuses)[number];

export type TtlStrategy = 'delete' | 'keep_latest';

/** When a thread expires, and what is then deleted. */
export interface ThreadTtl {
  readonly minutes: number;
  readonly strategy: TtlStrategy;
}

export interface Interrupt {
  readonly id?: string;
  readonly value: unknown;
  readonly [key: string]: unknown;
}

export interface Thread {
  readonly thread_id: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly state_updated_at: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly status: ThreadStatus;
  readonly config: Readonly<Record<string, unknown>>;
  readonly values: unknown;
  /** Open interrupts by task id. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
  readonly error: unknown;
  /** Present only if requested. */
  readonly ttl?: { readonly strategy: TtlStrategy; readonly ttl_minutes: number; readonly expires_at: string };
}

export interface ThreadCheckpoint extends CheckpointReference {
  readonly thread_id: string;
}

export interface ThreadTask {
  readonly id: string;
  readonly name: string;
  readonly path?: unknown;
  readonly error: string | null;
  readonly interrupts: readonly Interrupt[];
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState | null;
  readonly result: unknown;
}

export interface ThreadState {
  readonly values: unknown;
  readonly next: readonly string[];
  readonly tasks: readonly ThreadTask[];
  readonly checkpoint: ThreadCheckpoint | null;
  readonly parent_checkpoint: ThreadCheckpoint | null;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly created_at: string | null;
  readonly interrupts: readonly Interrupt[];
}

/** Columns of `agents.threads` that every response contains. Each column has the same name as its response field. */
export const responseColumns =
  'thread_id, created_at, updated_at, state_updated_at, metadata, status, config, values, interrupts, error';

/** Columns of `agents.threads` from which a {@link Thread} is built. */
export const threadColumns = `${responseColumns}, ttl_strategy, ttl_minutes, expires_at`;

export type ThreadRow = Omit<Thread, 'ttl'> & {
  readonly ttl_strategy: TtlStrategy | null;
  readonly ttl_minutes: number | null;
  readonly expires_at: string | null;
};

export function toThread({ ttl_strategy: strategy, ttl_minutes, expires_at, ...thread }: ThreadRow): Thread {
  if (strategy === null || ttl_minutes === null || expires_at === null) return thread;
  return { ...thread, ttl: { strategy, ttl_minutes, expires_at } };
}

/**
 * The fields of a thread that most operations need. The others can be tens of megabytes, and parsing them blocks the
 * event loop.
 */
export type ThreadHead = Pick<Thread, 'thread_id' | 'status' | 'metadata' | 'config'>;
const headColumns = 'thread_id, status, metadata, config';

/** Like {@link readThreadHead}, but returns undefined if there is no such thread. */
export function findThreadHead(database: Sql, deploymentId: string, threadId: string): Promise<ThreadHead | undefined> {
  return findVisible<ThreadHead>(database, 'agents_read_thread_head', headColumns, { deploymentId, threadId });
}

/** Reads the head of a visible thread. @throws THREAD_NOT_FOUND, also for a hidden thread. */
export function readThreadHead(database: Sql, deploymentId: string, threadId: string): Promise<ThreadHead> {
  return readVisible<ThreadHead>(database, 'agents_read_thread_head', headColumns, { deploymentId, threadId });
}

export interface InterruptedThread extends ThreadHead {
  /** Ids of the open interrupts; empty if the thread is not interrupted. */
  readonly interruptIds: readonly (string | null)[];
}

/**
 * Reads the head of a visible thread with the ids of its open interrupts. @throws THREAD_NOT_FOUND, also for a hidden
 * thread.
 */
export function readInterruptedThread(
  database: Sql,
  deploymentId: string,
  threadId: string,
): Promise<InterruptedThread> {
  const columns = `${headColumns},
    ARRAY(SELECT interrupt ->> 'id' FROM json_each(${decodableInterrupts}) AS task,
      json_array_elements(task.value) AS interrupt WHERE status = 'interrupted') AS "interruptIds"`;
  return readVisible(database, 'agents_read_interrupted_thread', columns, { deploymentId, threadId });
}

/**
 * SQL of the interrupts without the escapes of NUL and surrogates: Postgres cannot extract members if any text contains
 * a NUL or a lone surrogate. The second alternative consumes the other escapes, such as an escaped backslash before `u`.
 */
const decodableInterrupts = String.raw`regexp_replace(interrupts::text,
  '\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})|(\\.)', '\1', 'g')::json`;

/** Reads a visible thread, with its `ttl` if it has one. @throws THREAD_NOT_FOUND, also for a hidden thread. */
export async function readThread(database: Sql, deploymentId: string, threadId: string): Promise<Thread> {
  return toThread(
    await readVisible<ThreadRow>(database, 'agents_read_thread', threadColumns, { deploymentId, threadId }),
  );
}

/** Size of values for which a response does not reserve memory: measuring the whole row takes Postgres several milliseconds. */
const unreservedBytes = 1024 * 1024;

/** Like {@link readThread}, for a response, which reserves memory if the thread is large. @throws THREAD_NOT_FOUND */
export async function readThreadForResponse(database: Sql, deploymentId: string, threadId: string): Promise<Thread> {
  const bytes = 'coalesce(octet_length(values::text), 0) AS bytes';
  const thread = { deploymentId, threadId };
  const size = await readVisible<{ bytes: number }>(database, 'agents_thread_size', bytes, thread);
  if (size.bytes <= unreservedBytes) return readThread(database, deploymentId, threadId);
  const [row] = await queryPageWithinLimit<ThreadRow>(database, selectVisibleSql(threadColumns), [
    deploymentId,
    threadId,
  ]);
  if (row === undefined) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
  return toThread(row);
}

const selectVisibleSql = (columns: string) =>
  `SELECT ${columns} FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden`;

/** Like {@link readThread}, but returns undefined if there is no such thread. */
export async function findThread(database: Sql, deploymentId: string, threadId: string): Promise<Thread | undefined> {
  const row = await findVisible<ThreadRow>(database, 'agents_read_thread', threadColumns, { deploymentId, threadId });
  return row && toThread(row);
}

interface ThreadReference {
  readonly deploymentId: string;
  readonly threadId: string;
}

/** @param name of the prepared statement with these columns. */
async function findVisible<Row extends object>(
  database: Sql,
  name: string,
  columns: string,
  { deploymentId, threadId }: ThreadReference,
): Promise<Row | undefined> {
  const [row] = await database.query<Row>(selectVisibleSql(columns), [deploymentId, threadId], { name });
  return row;
}

/** Like {@link findVisible}. @throws THREAD_NOT_FOUND */
async function readVisible<Row extends object>(
  database: Sql,
  name: string,
  columns: string,
  thread: ThreadReference,
): Promise<Row> {
  const row = await findVisible<Row>(database, name, columns, thread);
  if (row === undefined) throw runlakeError('THREAD_NOT_FOUND', { thread: thread.threadId });
  return row;
}

/**
 * Returns the TTL that a langgraph.json sets for threads without a TTL of their own; undefined if these threads do not
 * expire.
 */
export function getDefaultTtl({ ttl }: GraphsFile['checkpointer']): ThreadTtl | undefined {
  const { default_ttl: minutes, strategy = 'delete' } = ttl ?? {};
  return minutes === undefined ? undefined : { minutes, strategy };
}

/** Maximum length of searchable values, in characters. Larger values cannot be searched. */
const maxCharacters = 1024 * 1024;

/**
 * Converts values, given as JSON text, to the text of the searchable `jsonb` column. Returns null if they are too
 * large.
 */
export function toSearchableText(text: string): string | null {
  return text.length > maxCharacters ? null : toJsonbText(text);
}

const valuesPrefix = 'values.';

/**
 * Returns the fields of a state that `select` lists, or all fields if `select` is undefined. An entry such as
 * `values.messages` selects one key of the values.
 */
export function selectStateFields(state: ThreadState, select: readonly string[] | undefined): Partial<ThreadState> {
  if (select === undefined) return state;
  const fields = Object.fromEntries(Object.entries(state).filter(([name]) => select.includes(name)));
  const keys = select.filter((name) => name.startsWith(valuesPrefix)).map((name) => name.slice(valuesPrefix.length));
  if (keys.length === 0 || 'values' in fields) return fields;
  const values = Object.entries(state.values ?? {}).filter(([key]) => keys.includes(key));
  return { ...fields, values: Object.fromEntries(values) };
}
