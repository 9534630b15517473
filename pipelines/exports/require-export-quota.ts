import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import type { ExportLimits } from './export-deps.ts';

const unfinished = `SELECT count(*) AS there FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id
  WHERE w.organization_id = $1 AND e.finished_at IS NULL`;

/**
 * Rolls back the transaction that inserted an export or a schedule if the organisation is then above its limit.
 *
 * @throws LIMIT_REACHED
 */
export async function requireExportQuota(
  tx: Sql,
  workspaceId: string,
  schedule: boolean,
  { exportMaxSchedules, exportMaxUnfinished }: Pick<ExportLimits, 'exportMaxSchedules' | 'exportMaxUnfinished'>,
): Promise<void> {
  if (schedule) {
    const count = `${unfinished} AND e.interval_hours IS NOT NULL`;
    await enforceLimit(tx, { workspaceId }, { most: exportMaxSchedules, count }, () =>
      runlakeError('LIMIT_REACHED', {
        limit: exportMaxSchedules,
        what: 'scheduled bulk exports',
        instead: 'Cancel those that are not needed',
      }),
    );
    return;
  }
  const count = `${unfinished} AND e.interval_hours IS NULL AND e.source_bulk_export_id IS NULL`;
  await enforceLimit(tx, { workspaceId }, { most: exportMaxUnfinished, count }, () =>
    runlakeError('LIMIT_REACHED', {
      limit: exportMaxUnfinished,
      what: 'bulk exports that are not finished',
      instead: 'Wait until some of them have ended, or cancel them',
    }),
  );
}
