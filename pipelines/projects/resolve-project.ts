import { randomUUID } from 'node:crypto';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { checkProjectName, DEFAULT_PROJECT } from './project.ts';
import { requireProjectQuota } from './write-project.ts';

/** A reference to a project in a run event. An empty name means the same as an absent name. */
export interface ProjectReference {
  readonly workspaceId: string;
  /** A UUID; takes precedence over the name. */
  readonly sessionId?: string | null | undefined;
  readonly sessionName?: string | null | undefined;
  /** Whether the event is a patch. Its run may have been posted under a former name of the project. */
  readonly isPatch: boolean;
  /** If set, no project is created for a new name; the call fails with this error. */
  readonly creationError?: RunlakeError | undefined;
}

/**
 * Resolves project references to ids, and creates a project for a new name.
 *
 * Results are cached for {@link cacheMs}: another process uses a renamed or deleted project for at most that time. In
 * the process that changes a project, {@link ProjectResolver.forget} clears the cache at once.
 */
export interface ProjectResolver {
  /**
   * Returns the nil UUID for a patch that names no project; such a patch gets the project of its trace.
   *
   * @throws PROJECT_UNKNOWN if the workspace has no project with this id, or if the project is deleted; BAD_REQUEST for
   *   an invalid name; LIMIT_REACHED if a new project exceeds the limit.
   */
  resolve(reference: ProjectReference): Promise<string>;
  /** Clears the cache. Call this method after a project has been renamed or deleted. */
  forget(): void;
}

const cacheMs = 5_000;

/**
 * Creates a resolver.
 *
 * @param maxProjects Maximum number of projects of an organisation.
 */
export function createProjectResolver(database: Database, maxProjects: number): ProjectResolver {
  const known = new PromiseCache<string>({ max: 50_000, ttlMs: cacheMs });

  return {
    async resolve({ workspaceId, sessionId, sessionName, isPatch, creationError }) {
      if (sessionId) {
        const id = sessionId.toLowerCase();
        const found = await known.get(`${workspaceId} id ${id}`, () => findById(database, workspaceId, id));
        if (found === undefined) throw runlakeError('PROJECT_UNKNOWN', { project: id });
        return found;
      }
      if (!sessionName && isPatch) return nilUuid;
      const name = checkProjectName(sessionName || DEFAULT_PROJECT);
      const kind = isPatch ? 'patch' : 'post';
      const found = await known.get(`${workspaceId} ${kind} ${name}`, () =>
        findOrCreate(database, maxProjects, { workspaceId, name, forPatch: isPatch, creationError }),
      );
      return found!;
    },
    forget: () => known.clear(),
  };
}

async function findById(database: Database, workspaceId: string, id: string): Promise<string | undefined> {
  const [row] = await database.query<{ id: string }>(
    'SELECT id FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL',
    [id, workspaceId],
  );
  return row?.id;
}

/**
 * Returns the project that has this name and is not deleted. If there is none, a patch gets the project that last had
 * the name; otherwise the function creates a new project. Concurrent calls create only one project.
 */
async function findOrCreate(
  database: Database,
  maxProjects: number,
  {
    workspaceId,
    name,
    forPatch,
    creationError,
  }: Pick<ProjectReference, 'workspaceId' | 'creationError'> & { readonly name: string; readonly forPatch: boolean },
): Promise<string> {
  const [row] = await database.query<{ id: string }>(
    `SELECT id FROM (
       SELECT id, 1 AS rank FROM projects WHERE workspace_id = $1 AND name = $2 AND deleted_at IS NULL
       UNION ALL
       SELECT p.id, 2 FROM project_former_names f JOIN projects p ON p.id = f.project_id
       WHERE $3 AND f.workspace_id = $1 AND f.name = $2 AND p.deleted_at IS NULL
     ) AS found ORDER BY rank LIMIT 1`,
    [workspaceId, name, forPatch],
  );
  if (row) return row.id;
  if (creationError) throw creationError;
  return database.transaction(async (tx) => {
    const id = randomUUID();
    const [project] = await tx.query<{ id: string }>(
      `INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)
       ON CONFLICT (workspace_id, name) WHERE deleted_at IS NULL
       DO UPDATE SET name = excluded.name
       RETURNING id`,
      [id, workspaceId, name],
    );
    if (project!.id === id) await requireProjectQuota(tx, workspaceId, maxProjects);
    return project!.id;
  });
}
