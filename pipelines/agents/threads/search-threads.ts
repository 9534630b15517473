import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireStorableJson } from '../../../infra/json/json-value.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { PageRequest } from '../../../infra/postgres/list-page.ts';
import { buildSelectList, queryPageWithinLimit } from '../../../infra/postgres/page-within.ts';
import { responseColumns, type Thread, type ThreadStatus } from './thread.ts';

interface ThreadFilter {
  readonly ids?: readonly string[];
  /** Members that the metadata of a thread must contain. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Members that the values of a thread after its last run must contain. */
  readonly values?: Readonly<Record<string, unknown>>;
  readonly status?: ThreadStatus;
}

/**
 * Counts the visible threads that match `filter`.
 *
 * @throws INVALID_REQUEST if the filter contains text that Postgres cannot store.
 */
export async function countThreads(database: Sql, deploymentId: string, filter: ThreadFilter): Promise<number> {
  const [row] = await database.query<{ total: number }>(
    `SELECT count(*) AS total FROM agents.threads WHERE ${filterCondition}`,
    buildFilterParams(deploymentId, filter),
  );
  return Number(row?.total ?? 0);
}

/** SQL condition on `agents.threads`. {@link buildFilterParams} returns its parameters $1 to $5. */
const filterCondition = `deployment_id = $1 AND NOT hidden AND ($2::uuid[] IS NULL OR thread_id = ANY ($2::uuid[]))
  AND ($3::jsonb IS NULL OR metadata @> $3::jsonb) AND ($4::jsonb IS NULL OR searchable_values @> $4::jsonb)
  AND ($5::text IS NULL OR status = $5)`;

function buildFilterParams(deploymentId: string, { ids, metadata, values, status }: ThreadFilter): unknown[] {
  requireStorableJson(metadata ?? null, ['body', 'metadata']);
  requireStorableJson(values ?? null, ['body', 'values']);
  return [deploymentId, ids ?? null, nullIfEmpty(metadata), nullIfEmpty(values), status ?? null];
}

/** Returns null if the object is undefined or empty, so that it sets no condition. */
function nullIfEmpty(members: Readonly<Record<string, unknown>> | undefined): object | null {
  return members === undefined || Object.keys(members).length === 0 ? null : members;
}

export interface ThreadSearch<Field extends keyof Thread = keyof Thread> extends ThreadFilter, PageRequest {
  readonly sortBy: 'thread_id' | 'status' | 'created_at' | 'updated_at' | 'state_updated_at';
  readonly sortOrder: 'asc' | 'desc';
  /** The fields to return. Default: all. */
  readonly fields?: readonly Field[] | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/**
 * Returns one page of the matching threads, without `ttl`, and the total number of matching threads.
 *
 * @throws ANSWER_TOO_LARGE
 */
export async function searchThreads<Field extends keyof Thread = keyof Thread>(
  database: Sql,
  deploymentId: string,
  search: ThreadSearch<Field>,
): Promise<{ readonly threads: readonly Pick<Thread, Field>[]; readonly total: number }> {
  const { sortBy, sortOrder, limit, offset, fields, limitBytes } = search;
  const order = sortOrder === 'asc' ? 'ASC' : 'DESC';
  const params = buildFilterParams(deploymentId, search);
  const [threads, total] = await Promise.all([
    queryPageWithinLimit<Pick<Thread, Field>>(
      database,
      `SELECT ${buildSelectList(responseColumns, fields)} FROM agents.threads WHERE ${filterCondition}
       ORDER BY ${sortBy} ${order}, thread_id ${order} LIMIT $6 OFFSET $7`,
      [...params, limit, offset],
      limitBytes,
    ),
    countThreads(database, deploymentId, search),
  ]);
  return { threads, total };
}

const rootFields = ['values', 'metadata', 'config', 'interrupts'] as const;
const pathStep = /\.([^.[\]]+)|\[(-?\d{1,9})\]/y;

/** Returns the thread fields with which the paths begin. */
export function listRootFields(paths: Readonly<Record<string, string>>): string[] {
  return Object.values(paths).flatMap((path) => parsePath(path)?.slice(0, 1).map(String) ?? []);
}

/** Extracts values of a thread by paths such as `values.messages[-1].content`. A path without a value yields null. */
export function extractPaths(
  thread: Partial<Thread>,
  paths: Readonly<Record<string, string>>,
): Record<string, unknown> {
  return Object.fromEntries(Object.entries(paths).map(([alias, path]) => [alias, getValueAt(thread, path)]));
}

/**
 * Validates paths, so that a request fails before any thread is read.
 *
 * @throws INVALID_REQUEST, with a field error for each invalid path.
 */
export function checkPaths(paths: Readonly<Record<string, string>>): void {
  const fields = Object.entries(paths).flatMap(([alias, path]) =>
    parsePath(path) === undefined
      ? [
          {
            loc: ['body', 'extract', alias],
            msg: `must be a path that begins with one of ${rootFields.join(', ')}`,
            type: 'path',
          },
        ]
      : [],
  );
  if (fields.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields });
}

function getValueAt(thread: Partial<Thread>, path: string): unknown {
  let at: unknown = thread;
  for (const key of parsePath(path) ?? []) {
    if (Array.isArray(at)) at = typeof key === 'number' ? at.at(key) : undefined;
    else at = isObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  return at ?? null;
}

/** Parses a path into field names and list indexes. Returns undefined if the path is invalid. */
function parsePath(path: string): (string | number)[] | undefined {
  const root = rootFields.find((name) => path === name || path.startsWith(`${name}.`) || path.startsWith(`${name}[`));
  if (root === undefined) return undefined;
  const steps: (string | number)[] = [root];
  pathStep.lastIndex = root.length;
  while (pathStep.lastIndex < path.length) {
    const match = pathStep.exec(path);
    if (match === null) return undefined;
    steps.push(match[1] ?? Number(match[2]));
  }
  return steps;
}

function isObject(value: unknown): value is Record<string | number, unknown> {
  return typeof value === 'object' && value !== null;
}
