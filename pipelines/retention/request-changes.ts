/** Requests to keep or to delete traces (`trace_changes` in Postgres), which the job `change-traces` handles. */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { readProject } from '../projects/project.ts';
import type { RetentionConfig } from './lifetimes.ts';

export const maxTracesPerRequest = 1_000;

interface TracesOfProject {
  readonly projectId: string;
  readonly traceIds: readonly string[];
}

/** Traces of a project that a caller wants to delete: by id, or by the metadata of any of their runs. */
interface TracesToDelete {
  readonly projectId: string;
  readonly traceIds?: readonly string[] | undefined;
  /** Key-value pairs, all of which the metadata of one run must contain. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/**
 * Requests the deletion of traces. When the promise resolves, the request is durable; the job `change-traces` deletes
 * the traces (`change-traces.ts`).
 *
 * @throws NOT_FOUND if the workspace has no such project; BAD_REQUEST unless exactly one of ids and metadata is given.
 */
export async function requestDeletion(
  database: Database,
  workspaceId: string,
  { projectId, traceIds = [], metadata = {} }: TracesToDelete,
): Promise<void> {
  const pairs = Object.keys(metadata).length;
  if (traceIds.length > 0 === pairs > 0) {
    throw runlakeError('BAD_REQUEST', {
      reason: 'Exactly one of trace_ids and metadata must be given, and not empty.',
    });
  }
  await readProject(database, workspaceId, projectId);
  await database.execute(
    `INSERT INTO trace_changes (kind, tenant_id, session_id, trace_ids, metadata)
     VALUES ('delete', $1, $2, $3::uuid[], $4)`,
    [workspaceId, projectId, pairs > 0 ? null : traceIds, pairs > 0 ? JSON.stringify(metadata) : null],
  );
}

/**
 * Requests that traces become longlived. When the promise resolves, the request is durable; the job `change-traces`
 * changes the traces.
 *
 * @throws NOT_FOUND if the workspace has no such project.
 */
export async function requestKeep(
  database: Database,
  workspaceId: string,
  { projectId, traceIds }: TracesOfProject,
): Promise<void> {
  await readProject(database, workspaceId, projectId);
  await database.execute(
    `INSERT INTO trace_changes (kind, tenant_id, session_id, trace_ids) VALUES ('keep', $1, $2, $3::uuid[])`,
    [workspaceId, projectId, traceIds],
  );
}

/**
 * Like {@link requestKeep}, for traces of any projects of a workspace. Traces that the workspace does not have are
 * ignored.
 */
export async function requestKeepInWorkspace(
  sql: Sql,
  workspaceId: string,
  traceIds: readonly string[],
): Promise<void> {
  await sql.execute(
    `INSERT INTO trace_changes (kind, tenant_id, trace_ids)
     SELECT 'keep', $1, array_agg(trace_id) FROM unnest($2::uuid[]) WITH ORDINALITY AS traces (trace_id, position)
     GROUP BY position / $3::bigint`,
    [workspaceId, traceIds, maxTracesPerRequest],
  );
}

/** Deletions end after two hours, unless the sinks are far behind or a server is down. */
const overdueHours = 6;

/**
 * Checks that no requested deletion is overdue.
 *
 * @returns a description of those that are in flight.
 * @throws PART_UNUSABLE
 */
export async function inspectDeletions(database: Pick<Database, 'query'>): Promise<string> {
  const [found] = await database.query<{ count: number; overdue: number; oldest: string | null }>(
    `SELECT count(*)::int AS count, (count(*) FILTER (WHERE requested_at < now() - make_interval(hours => $1)))::int AS overdue,
       to_char(min(requested_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS oldest
     FROM trace_changes WHERE kind = 'delete'`,
    [overdueHours],
  );
  const { count = 0, overdue = 0, oldest } = found ?? {};
  if (overdue === 0) return count === 0 ? 'no request to delete traces is waiting' : `${count} requests are in flight`;
  throw runlakeError('PART_UNUSABLE', {
    reason: `${overdue} requests to delete traces are not complete; the oldest is of ${oldest}`,
    remedy:
      'See "change-traces" in the log of the workers. A deletion needs the sinks, and every replica of ClickHouse.',
  });
}

/** A claimed row of `trace_changes`. */
export interface TraceChange {
  readonly id: number;
  readonly kind: 'keep' | 'delete';
  readonly tenantId: string;
  readonly runId: string | null;
  /** If given, the traces must be in this project. */
  readonly projectId: string | null;
  readonly traceIds: readonly string[] | null;
  /** JSON object whose values are strings. */
  readonly metadata: string | null;
  readonly requestedAtMicros: number;
  /** Whether to copy the rows even if the trace is already longlived, because rows stored later may expire earlier. */
  readonly isSecond: boolean;
}

/** What the job needs. */
export interface ChangeDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly log: Pick<EventLog, 'position' | 'isStored'>;
  readonly config: RetentionConfig;
}
