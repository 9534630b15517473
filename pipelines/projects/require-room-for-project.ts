import { fault } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { stayWithin } from '../tenants/stay-within.ts';

const projectsThere = `SELECT count(*) AS there FROM projects AS p JOIN workspaces AS w ON w.id = p.workspace_id
  WHERE w.organization_id = $1 AND p.deleted_at IS NULL AND w.deleted_at IS NULL`;

/** Undoes the transaction that has inserted a project too many. @throws LIMIT_REACHED */
export function requireRoomForProject(tx: Sql, workspaceId: string, maxProjects: number): Promise<void> {
  return stayWithin(tx, { workspaceId }, { most: maxProjects, count: projectsThere }, () =>
    fault('LIMIT_REACHED', {
      limit: maxProjects,
      what: 'tracing projects',
      setting: 'RUNLAKE_MAX_PROJECTS',
      instead: 'Name a project that is there, delete those that are not needed',
    }),
  );
}
