import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';

type Metadata = Readonly<Record<string, unknown>>;

/**
 * Members that the metadata of an object must contain so that a user has access to the object. Members are compared as
 * by `metadata @> …` in Postgres: a scalar must be equal; each element of a list must be in the list of that key.
 */
export type RequiredMetadata = Readonly<Record<string, string | number | boolean | readonly string[]>>;

/**
 * Converts the filter that an auth handler returned: `{key: value}`, `{key: {$eq: value}}` or `{key: {$contains: value
 * or list}}`.
 *
 * @returns undefined, which means access to all objects, if the filter is null or empty.
 * @throws AUTH_HANDLER_INVALID for any other filter, so that a filter that Runlake does not support denies access.
 */
export function parseRequiredMetadata(filter: unknown, event: string): RequiredMetadata | undefined {
  if (filter === null || filter === undefined) return undefined;
  const createInvalidError = (reason: string) => runlakeError('AUTH_HANDLER_INVALID', { event, reason });
  if (typeof filter !== 'object' || Array.isArray(filter))
    throw createInvalidError(`it returned a ${typeof filter}, not a filter`);
  const required = Object.entries(filter).map(([key, condition]): [string, string | number | boolean | string[]] => {
    if (isPrimitive(condition)) return [key, condition];
    const [[operator, operand] = [], ...more] = Object.entries((condition ?? {}) as object);
    if (more.length === 0 && operator === '$eq' && isPrimitive(operand)) return [key, operand];
    const list = Array.isArray(operand) ? operand : [operand];
    if (more.length === 0 && operator === '$contains' && list.every((one) => typeof one === 'string'))
      return [key, list];
    throw createInvalidError(`the condition on '${key}' is neither a value nor $eq nor $contains`);
  });
  return required.length === 0 ? undefined : Object.fromEntries(required);
}

/** Returns true if `metadata` contains `required`, with the semantics of `metadata @> required` in Postgres. */
export function containsRequiredMetadata(metadata: Metadata, required: RequiredMetadata = {}): boolean {
  return Object.entries(required).every(([key, value]) => {
    const given = metadata[key];
    if (!Array.isArray(value)) return given === value;
    return Array.isArray(given) && value.every((one) => given.includes(one));
  });
}

/** Adds `required` to the metadata of a new object, so that its creator has access to it. */
export function addRequiredMetadata(metadata: Metadata, required: RequiredMetadata = {}): Record<string, unknown> {
  const added = Object.entries(required).map(([key, value]) => {
    if (!Array.isArray(value)) return [key, value];
    const given = metadata[key];
    return [key, [...new Set([...(Array.isArray(given) ? given : []), ...value])]];
  });
  return { ...metadata, ...Object.fromEntries(added) };
}

/** Adjusts changes of metadata so that the changed object still contains `required`. */
export function addRequiredMetadataToChanges(
  changes: Metadata,
  required: RequiredMetadata = {},
): Record<string, unknown> {
  const changed = Object.entries(required).filter(([key]) => Object.hasOwn(changes, key));
  return addRequiredMetadata(changes, Object.fromEntries(changed));
}

/** Combines a requested metadata filter with `required`. Returns undefined if no object can contain both. */
export function combineFilters(requested: Metadata, required: RequiredMetadata): Record<string, unknown> | undefined {
  const hasConflict = Object.entries(required).some(([key, value]) => {
    if (!Object.hasOwn(requested, key)) return false;
    return Array.isArray(value) ? !Array.isArray(requested[key]) : requested[key] !== value;
  });
  return hasConflict ? undefined : addRequiredMetadata(requested, required);
}

function isPrimitive(value: unknown): value is string | number | boolean {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
}

const tables = {
  threads: ['agents.threads', 'thread_id'],
  assistants: ['agents.assistants', 'assistant_id'],
  crons: ['agents.crons', 'cron_id'],
} as const;

export type ProtectedTable = keyof typeof tables;

/** Reads the rows of a deployment that access rules depend on. */
export class AuthorizedRows {
  readonly #database: Database;
  readonly #deploymentId: string;

  constructor(database: Database, deploymentId: string) {
    this.#database = database;
    this.#deploymentId = deploymentId;
  }

  /** Returns true if the row exists and its metadata contains `required`. */
  async rowMatches(kind: ProtectedTable, id: string, required: RequiredMetadata): Promise<boolean> {
    const [table, column] = tables[kind];
    const rows = await this.#database.query(
      `SELECT FROM ${table} WHERE deployment_id = $1 AND ${column} = $2 AND metadata @> $3`,
      [this.#deploymentId, id, required],
    );
    return rows.length > 0;
  }

  /**
   * Returns the assistant or graph that the metadata of a thread names. The next run of the thread uses it. Users can
   * write metadata, so the caller must check access to this assistant as to any other assistant.
   */
  async findThreadAssistant(threadId: string): Promise<string | undefined> {
    const [row] = await this.#database.query<{ assistant: string | null }>(
      `SELECT coalesce(metadata->>'assistant_id', metadata->>'graph_id') AS assistant FROM agents.threads
       WHERE deployment_id = $1 AND thread_id = $2`,
      [this.#deploymentId, threadId],
    );
    return row?.assistant ?? undefined;
  }

  /** Returns true if the metadata of all threads that the assistant ran on contains `required`. */
  async ownsAssistantThreads(assistantId: string, required: RequiredMetadata): Promise<boolean> {
    const others = await this.#database.query(
      `SELECT FROM agents.threads thread WHERE deployment_id = $1 AND NOT metadata @> $3
         AND (metadata @> $4 OR EXISTS (SELECT FROM agents.runs run WHERE run.deployment_id = $1
           AND run.assistant_id = $2 AND run.thread_id = thread.thread_id)) LIMIT 1`,
      [this.#deploymentId, assistantId, required, { assistant_id: assistantId }],
    );
    return others.length === 0;
  }
}
