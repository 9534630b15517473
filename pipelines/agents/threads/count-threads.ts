import type { Sql } from '../../../infra/postgres/database.ts';
import { requireStorableJson } from './storable-json.ts';
import type { ThreadStatus } from './thread.ts';

export interface ThreadFilter {
  readonly ids?: readonly string[];
  /** Members that the metadata must contain. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Members that the values after the last run must contain. */
  readonly values?: Readonly<Record<string, unknown>>;
  readonly status?: ThreadStatus;
}

/** Counts the visible threads that match `filter`. @throws INVALID_REQUEST if Postgres cannot store a text of the filter. */
export async function countThreads(database: Sql, deploymentId: string, filter: ThreadFilter): Promise<number> {
  const [row] = await database.query<{ total: number }>(
    `SELECT count(*) AS total FROM agents.threads WHERE ${matchingSql}`,
    filterParams(deploymentId, filter),
  );
  return Number(row?.total ?? 0);
}

/** SQL condition on `agents.threads`; $1 to $5 are {@link filterParams}. */
export const matchingSql = `deployment_id = $1 AND NOT hidden AND ($2::uuid[] IS NULL OR thread_id = ANY ($2::uuid[]))
  AND ($3::jsonb IS NULL OR metadata @> $3::jsonb) AND ($4::jsonb IS NULL OR searchable_values @> $4::jsonb)
  AND ($5::text IS NULL OR status = $5)`;

export function filterParams(deploymentId: string, { ids, metadata, values, status }: ThreadFilter): unknown[] {
  requireStorableJson(metadata ?? null, ['body', 'metadata']);
  requireStorableJson(values ?? null, ['body', 'values']);
  return [deploymentId, ids ?? null, nullIfEmpty(metadata), nullIfEmpty(values), status ?? null];
}

/** An empty object sets no condition. */
function nullIfEmpty(members: Readonly<Record<string, unknown>> | undefined): object | null {
  return members === undefined || Object.keys(members).length === 0 ? null : members;
}
