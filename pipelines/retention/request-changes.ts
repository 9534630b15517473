import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { readProject } from '../projects/project.ts';

interface TracesOfProject {
  readonly projectId: string;
  readonly traceIds: readonly string[];
}

/** Traces of a project that a caller wants to delete: by id, or by the metadata of any of their runs. */
interface TracesToDelete {
  readonly projectId: string;
  readonly traceIds?: readonly string[] | undefined;
  /** Pairs that the metadata of one run must contain, all of them. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/**
 * Requests the deletion of traces. When it resolves, the request is durable; the job `change-traces` deletes the traces
 * (`change-traces.ts`).
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
 * Requests that traces become longlived. When it resolves, the request is durable; the job `change-traces` changes the
 * traces.
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
