import { randomUUID } from 'node:crypto';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';
import { checkProjectName, DEFAULT_PROJECT } from './project.ts';

const countProjectsSql = countInWorkspaces('projects', 'counted.deleted_at IS NULL');

/** Rolls back the transaction if the inserted project puts the organisation above its limit. @throws LIMIT_REACHED */
export function requireProjectQuota(tx: Sql, workspaceId: string, maxProjects: number): Promise<void> {
  return enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
    max: maxProjects,
    countSql: countProjectsSql,
    what: 'tracing projects',
    hint: 'Use an existing project, delete those that are not needed',
  });
}

/** A reference to a project in a run event. An empty name means the same as an absent name. */
export interface ProjectReference {
  readonly workspaceId: string;
  /** A UUID; takes precedence over the name. */
  readonly sessionId?: string | null | undefined;
  readonly sessionName?: string | null | undefined;
  /**
   * Name that the project of an agent has when it is created, for an event that names no other project. The project is
   * found under this name even if it was renamed.
   */
  readonly agentProject?: string | undefined;
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

/** Creates a resolver. @param maxProjects Maximum number of projects of an organisation. */
export function createProjectResolver(database: Database, maxProjects: number): ProjectResolver {
  const known = new PromiseCache<string>({ max: 50_000, ttlMs: cacheMs });

  return {
    async resolve({ workspaceId, sessionId, sessionName, agentProject, isPatch, creationError }) {
      if (sessionId) {
        const id = sessionId.toLowerCase();
        const found = await known.get(`${workspaceId} id ${id}`, () => findById(database, workspaceId, id));
        if (found === undefined) throw runlakeError('PROJECT_UNKNOWN', { project: id });
        return found;
      }
      if (!sessionName && !agentProject && isPatch) return nilUuid;
      const name = checkProjectName(sessionName || agentProject || DEFAULT_PROJECT);
      const withFormerNames = isPatch || (!sessionName && agentProject !== undefined);
      const found = await known.get(`${workspaceId} ${withFormerNames ? 'any' : 'current'} ${name}`, () =>
        findOrCreate(database, maxProjects, { workspaceId, name, withFormerNames, creationError }),
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
 * Finds the projects that have the given names and are not deleted. With `withFormerNames`, a name that no project has
 * leads to the project that last had it. Returns ids by name.
 */
export async function findProjectsByName(
  database: Database,
  {
    workspaceId,
    names,
    withFormerNames,
  }: { readonly workspaceId: string; readonly names: readonly string[]; readonly withFormerNames: boolean },
): Promise<ReadonlyMap<string, string>> {
  if (names.length === 0) return new Map();
  const rows = await database.query<{ name: string; id: string }>(
    `SELECT DISTINCT ON (name) name, id FROM (
       SELECT name, id, 1 AS rank FROM projects
       WHERE workspace_id = $1 AND name = ANY ($2::text[]) AND deleted_at IS NULL
       UNION ALL
       SELECT f.name, p.id, 2 FROM project_former_names f JOIN projects p ON p.id = f.project_id
       WHERE $3 AND f.workspace_id = $1 AND f.name = ANY ($2::text[]) AND p.deleted_at IS NULL
     ) AS found ORDER BY name, rank`,
    [workspaceId, names, withFormerNames],
  );
  return new Map(rows.map(({ name, id }) => [name, id]));
}

/** Returns the project of this name, and creates one if there is none. Concurrent calls create only one project. */
async function findOrCreate(
  database: Database,
  maxProjects: number,
  {
    workspaceId,
    name,
    withFormerNames,
    creationError,
  }: Pick<ProjectReference, 'workspaceId' | 'creationError'> & {
    readonly name: string;
    readonly withFormerNames: boolean;
  },
): Promise<string> {
  const found = await findProjectsByName(database, { workspaceId, names: [name], withFormerNames });
  if (found.has(name)) return found.get(name) as string;
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
