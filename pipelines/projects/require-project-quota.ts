import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';

const countProjects = `SELECT count(*) AS there FROM projects AS p JOIN workspaces AS w ON w.id = p.workspace_id
  WHERE w.organization_id = $1 AND p.deleted_at IS NULL AND w.deleted_at IS NULL`;

/** Rolls back the transaction that inserted a project if the organisation is then above its limit. @throws LIMIT_REACHED */
export function requireProjectQuota(tx: Sql, workspaceId: string, maxProjects: number): Promise<void> {
  return enforceLimit(tx, { workspaceId }, { most: maxProjects, count: countProjects }, () =>
    runlakeError('LIMIT_REACHED', {
      limit: maxProjects,
      what: 'tracing projects',
      instead: 'Use an existing project, delete those that are not needed',
    }),
  );
}
