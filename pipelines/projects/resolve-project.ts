import { randomUUID } from 'node:crypto';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { checkProjectName, DEFAULT_PROJECT } from './project-name.ts';
import { requireRoomForProject } from './require-room-for-project.ts';

/** How a run event names its project. Empty names count as absent. */
export interface ProjectReference {
  readonly workspaceId: string;
  /** A UUID; it wins over the name. */
  readonly sessionId?: string | null | undefined;
  readonly sessionName?: string | null | undefined;
  /** Whether the event changes a run that may have been posted under a name that its project has given up since. */
  readonly forPatch: boolean;
}

/**
 * Turns what a run says of its project into the project's id, and makes the project where a name is new.
 *
 * Answers are remembered for {@link rememberedMs}: that long at most another process goes on to use a project that was renamed
 * or deleted; in the process that does so {@link ProjectResolver.forget} ends it at once.
 */
export interface ProjectResolver {
  /**
   * The nil UUID for a patch that names no project: it belongs to the one of its trace.
   *
   * @throws PROJECT_UNKNOWN where the workspace has no living project of that id, BAD_REQUEST for an impossible name,
   * LIMIT_REACHED where it would be one too many.
   */
  resolve(reference: ProjectReference): Promise<string>;
  /** After a project was renamed or deleted. */
  forget(): void;
}

const rememberedMs = 5_000;

/** @param maxProjects Most of the organisation of a workspace. */
export function createProjectResolver(database: Database, maxProjects: number): ProjectResolver {
  const known = new PromiseCache<string>({ max: 50_000, ttlMs: rememberedMs });

  return {
    async resolve({ workspaceId, sessionId, sessionName, forPatch }) {
      if (sessionId) {
        const id = sessionId.toLowerCase();
        const found = await known.get(`${workspaceId} id ${id}`, () => findById(database, workspaceId, id));
        if (found === undefined) throw fault('PROJECT_UNKNOWN', { project: id });
        return found;
      }
      if (!sessionName && forPatch) return nilUuid;
      const name = checkProjectName(sessionName || DEFAULT_PROJECT);
      const kind = forPatch ? 'patch' : 'post';
      const found = await known.get(`${workspaceId} ${kind} ${name}`, () =>
        findOrCreate(database, maxProjects, { workspaceId, name, forPatch }),
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

/** The living project of that name; for patches else the one that had it last; else a new one, of which only one is made. */
async function findOrCreate(
  database: Database,
  maxProjects: number,
  { workspaceId, name, forPatch }: { readonly workspaceId: string; readonly name: string; readonly forPatch: boolean },
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
  return database.transaction(async (tx) => {
    const id = randomUUID();
    const [there] = await tx.query<{ id: string }>(
      `INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)
       ON CONFLICT (workspace_id, name) WHERE deleted_at IS NULL
       DO UPDATE SET name = excluded.name
       RETURNING id`,
      [id, workspaceId, name],
    );
    if (there!.id === id) await requireRoomForProject(tx, workspaceId, maxProjects);
    return there!.id;
  });
}
